"""`manage.py evaluate`: NDCG@10 over questions with known answers, without a language model."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.building import build_now
from indexing.errors import IndexingError
from indexing.models import Repository
from indexing.refreshing import repository_at
from search.comparing import compare
from search.errors import EvaluationError
from search.evaluation import (
    Outcome,
    Question,
    Way,
    figures,
    own_commit,
    per_query,
    pooled,
    read_questions,
    report,
    run,
    stored_questions,
)
from search.given_plans import OWN_PLANS, GivenPlan, combinations, plans_report, read_plans
from search.models import EvaluationRun
from search.resources import measured
from search.results import SearchOptions
from search.scripted_judges import JUDGES

POOLED_CHOICES = 10  # as many repositories as the figure "among 10" needs
STORED_OPTIONS = (
    "set",
    "repo",
    "annotations",
    "distractors",
    "no_vectors",
    "no_golden",
    "golden",
    "pooled",
    "plans",
    "judge",
)

Json = dict[str, Any]  # Any: JSON


class Command(BaseCommand):
    help = "Measure the ranking, indexing the corpora first. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--annotations", type=Path, help="folder of NAME.json question lists")
        parser.add_argument("--corpora", type=Path, help="folder with a Git repository per NAME")
        parser.add_argument("--set", metavar="NAME", help="a question set from the admin, instead of these folders")
        parser.add_argument("--repo", action="append", default=[], help="only this NAME; may be given more than once")
        parser.add_argument(
            "--plans",
            type=Path,
            nargs="?",
            const=OWN_PLANS,
            metavar="FILE",
            help="JSON list of plans to search with, instead of the questions; without FILE the project's own",
        )
        parser.add_argument("--pooled", action="store_true", help="ask all repositories at once, naming none")
        parser.add_argument("--distractors", type=Path, help="pooled: a folder of more Git repositories to search in")
        parser.add_argument("--no-vectors", action="store_true", help="search by words only")
        golden = parser.add_mutually_exclusive_group()
        golden.add_argument("--no-golden", action="store_true", help="as if no repository were golden")
        golden.add_argument("--golden", nargs="+", default=[], metavar="NAME", help="as if only these were golden")
        parser.add_argument("--judge", choices=JUDGES, help="re-rank with grades made from the known answers")
        parser.add_argument("--compare", metavar="RUN", help="number of a stored run, or `last`")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
        parser.add_argument("--queries", action="store_true", help="add the figure of every question to the report")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        try:
            questions = _questions(options)
            given = read_plans(options["plans"], questions) if options["plans"] else []
            earlier = _stored_run(options["compare"])
        except EvaluationError as error:
            raise CommandError(str(error), returncode=2) from error
        names = sorted({question.repository for question in questions})
        if options["set"]:
            repositories = _searchable(names)
        else:
            repositories = {name: self._indexed(options["corpora"] / name) for name in names}
        others = self._distractors(options["distractors"])
        way = _way(options, repositories, others)
        with measured() as cost:
            outcomes, document = self._asked(questions, given, repositories, way)
        document |= {"cost": cost.to_json()}
        if options["pooled"]:
            document["pooled"] = {"repositories": len(way.pool)} | pooled(outcomes)
        if earlier is not None:
            document["comparison"] = {"run": earlier.pk} | _comparison(earlier, outcomes)
        document["run"] = _store(options, document, outcomes).pk
        if options["queries"]:
            document["per_query"] = per_query(outcomes)
        self.stdout.write(json.dumps(document) if options["json"] else "\n".join(_lines(document)))

    def _asked(
        self,
        questions: Sequence[Question],
        given: Sequence[GivenPlan],
        repositories: Mapping[str, Repository],
        way: Way,
    ) -> tuple[list[Outcome], Json]:
        if not given:
            outcomes = run(questions, repositories, way=way, on_question=self._progress)
            return outcomes, report(outcomes)
        by_name = {}
        for name, plans in combinations(given).items():
            by_name[name] = run(list(plans), repositories, way=way.with_plans(plans), on_question=self._progress)
        return by_name["all"], report(by_name["all"]) | {
            "plans": plans_report({name: figures(outcomes) for name, outcomes in by_name.items()})
        }

    def _distractors(self, folder: Path | None) -> dict[str, Repository]:
        corpora = sorted(corpus for corpus in folder.iterdir() if corpus.is_dir()) if folder else []
        return {corpus.name: self._indexed(corpus) for corpus in corpora}

    def _indexed(self, corpus: Path) -> Repository:
        if not corpus.is_dir():
            raise CommandError(f"{corpus} is not there; --corpora needs a Git repository per NAME.", returncode=2)
        try:
            repository = repository_at(corpus, name=f"benchmark/{corpus.name}")
            build_now(repository, on_progress=lambda line: self.stderr.write(f"{corpus.name}: {line}"))
        except IndexingError as error:
            raise CommandError(f"{corpus.name}: {error}") from error
        repository.refresh_from_db()
        return repository

    def _progress(self, done: int, known: int) -> None:
        if sys.stderr.isatty():
            self.stderr.write(f"\r{done} of {known} questions", ending="\n" if done == known else "")


def _questions(options: Json) -> list[Question]:
    """Raises EvaluationError."""
    if options["set"]:
        return stored_questions(options["set"])
    if not options["annotations"] or not options["corpora"]:
        raise EvaluationError("Say what to ask: --set NAME, or --annotations DIR with --corpora DIR.")
    return read_questions(options["annotations"], options["repo"])


def _searchable(names: Sequence[str]) -> dict[str, Repository]:
    found = {repository.name: repository for repository in Repository.objects.searchable().filter(name__in=names)}
    missing = ", ".join(sorted(set(names) - set(found)))
    if missing:
        raise CommandError(f"{missing} is not indexed yet; index it first.")
    return found


def _stored_run(wanted: str | None) -> EvaluationRun | None:
    """Raises EvaluationError when that run is not stored."""
    if not wanted:
        return None
    runs = EvaluationRun.objects.all()
    found = runs.first() if wanted == "last" else runs.filter(pk=int(wanted)).first() if wanted.isdigit() else None
    if found is None:
        numbers = ", ".join(str(pk) for pk in runs.values_list("pk", flat=True)[:10]) or "none yet"
        raise EvaluationError(f"There is no stored run {wanted}. The newest are: {numbers}.")
    return found


def _way(options: Json, repositories: Mapping[str, Repository], others: Mapping[str, Repository]) -> Way:
    known = {**others, **repositories}
    unknown = set(options["golden"]) - set(known)
    if unknown:
        raise CommandError(f"--golden: {', '.join(sorted(unknown))} is not among the repositories.", returncode=2)
    golden = frozenset(known[name].pk for name in options["golden"])
    return Way(
        options=SearchOptions(
            vectors=not options["no_vectors"],
            golden=golden if golden or options["no_golden"] else None,
            repositories=POOLED_CHOICES,
        ),
        pool=frozenset(repository.pk for repository in known.values()) if options["pooled"] else frozenset(),
        judge=options["judge"] or "",
    )


def _comparison(earlier: EvaluationRun, outcomes: Sequence[Outcome]) -> Json:
    comparison = compare(earlier.figures, figures(outcomes))
    return comparison.to_json() if comparison else {"questions": 0}


def _store(options: Json, document: Json, outcomes: Sequence[Outcome]) -> EvaluationRun:
    return EvaluationRun.objects.create(
        commit=own_commit(),
        options={
            name: str(value) if isinstance(value, Path) else value
            for name in STORED_OPTIONS
            if (value := options[name])
        },
        ndcg_at_10=document["overall"]["ndcg_at_10"],
        queries=document["overall"]["queries"],
        report={**document, "per_query": per_query(outcomes)},
    )


# For people.


def _lines(document: Json) -> list[str]:
    overall, cost = document["overall"], document["cost"]
    lines = [f"NDCG@10 {overall['ndcg_at_10']:.4f} over {overall['queries']} questions (run {document['run']})"]
    lines.append(f"{overall['candidate_recall_at_50']:.4f} of the targets are among the first 50 candidates")
    for group in ("per_repository", "per_category", "per_language"):
        lines += ["", group.removeprefix("per_")]
        lines += [f"  {name:24} {row['ndcg_at_10']:.4f}  {row['queries']:4}" for name, row in document[group].items()]
    lines += _plan_lines(document.get("plans", {})) + _pooled_lines(document.get("pooled", {}))
    lines += ["", "milliseconds"]
    for name, row in document["latency_ms"].items():
        lines.append(f"  {name:24} p50 {row['p50']:8.2f}  p95 {row['p95']:8.2f}")
    lines.append(
        f"{cost['seconds']:.1f} s, {cost['cpu_seconds']:.1f} s of CPU, at most {cost['peak_megabytes']:.0f} MB"
    )
    return lines + _comparison_lines(document.get("comparison", {}))


def _plan_lines(plans: Json) -> list[str]:
    lines = ["", "plans, with the ratio to the English query alone on the same questions"] if plans else []
    for name, row in plans.items():
        low, high = row["ratio_interval_95"]
        lines.append(
            f"  {name:24} {row['ndcg_at_10']:.4f}  {row['queries']:4}"
            f"  {row['ratio_to_english']:.3f} ({low:.3f} to {high:.3f})"
        )
    return lines


def _pooled_lines(found: Json) -> list[str]:
    lines = ["", f"all {found['repositories']} repositories together"] if found else []
    for name in ("all", "not_naming"):
        if row := found.get(name):
            lines.append(
                f"  {name:12} right one first {row['right_among_1']:.3f}, among 5 {row['right_among_5']:.3f},"
                f" among 10 {row['right_among_10']:.3f}; NDCG@10 {row['ndcg_at_10']:.4f} over {row['queries']}"
            )
    return lines


def _comparison_lines(found: Json) -> list[str]:
    if not found:
        return []
    if not found["questions"]:
        return ["", f"run {found['run']} has none of these questions"]
    low, high = found["interval_95"]
    lines = [
        "",
        f"against run {found['run']} over {found['questions']} questions:"
        f" {found['before']:.4f} -> {found['after']:.4f}, {found['difference']:+.4f} ({low:+.4f} to {high:+.4f}),"
        f" {found['wins']} won, {found['losses']} lost, {found['ties']} as before",
    ]
    for change in found["changes"]:
        lines.append(f"  {change['before']:.2f} -> {change['after']:.2f}  {change['repository']}: {change['query']}")
    return lines
