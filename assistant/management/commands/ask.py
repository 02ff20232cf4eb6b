"""`manage.py ask QUESTION`: an answer with its citations on the terminal, without the web server.

Nothing is stored: no conversation, no message. With --json one document goes to standard output.
"""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser
from dataclasses import dataclass, field
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from assistant.answering import evidence_data
from assistant.citations import place_title
from assistant.conversations import MAX_QUESTION_CHARS, MODES
from assistant.writing import Answer, Ask, Evidence, Notice, Text, write
from indexing.access import Principal
from indexing.errors import IndexingError
from indexing.models import Repository
from search.errors import SearchError
from search.results import Hit, Scope

FAILED, WRONG_USE = 1, 2


@dataclass(slots=True)
class _Outcome:
    hits: tuple[Hit, ...] = ()
    text: str = ""
    notices: list[str] = field(default_factory=list)
    answer: Answer | None = None


class Command(BaseCommand):
    help = "Answer a question about the indexed code, with citations."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("question")
        parser.add_argument(
            "--repo", action="append", default=[], metavar="NAME", help="Only this repository; repeat for more"
        )
        parser.add_argument("--mode", choices=MODES, default="explain")
        parser.add_argument("--json", action="store_true", help="One JSON document: answer, citations, model, trace")

    def handle(self, *args: object, **options: Any) -> None:  # Any: argparse
        ask = Ask(
            question=_question(options["question"]),
            principal=Principal.operator(),
            scope=Scope(repository_ids=_repository_ids(options["repo"])),
            mode=options["mode"],
        )
        try:
            outcome = asyncio.run(self._answer(ask, live=not options["json"]))
        except (SearchError, IndexingError) as error:
            raise CommandError(str(error), returncode=FAILED) from error
        if options["json"]:
            self.stdout.write(json.dumps(_document(outcome), ensure_ascii=False, indent=2))
        else:
            self._print_sources(outcome)
        if outcome.answer is not None and outcome.answer.error:
            raise CommandError(outcome.answer.error, returncode=FAILED)

    async def _answer(self, ask: Ask, *, live: bool) -> _Outcome:
        outcome = _Outcome()
        async for step in write(ask):
            match step:
                case Evidence():
                    outcome.hits = step.hits
                case Text():
                    outcome.text += step.text
                    if live:
                        self.stdout.write(step.text, ending="")
                        self.stdout.flush()
                case Notice():
                    outcome.notices.append(step.text)
                case Answer():
                    outcome.answer = step
        return outcome

    def _print_sources(self, outcome: _Outcome) -> None:
        self.stdout.write("\n")
        cited = set(outcome.answer.mentions.cited) if outcome.answer else set()
        for number, hit in enumerate(outcome.hits, start=1):
            if number in cited:
                lines, range_ = (hit.start_line, hit.end_line), (hit.start_byte, hit.end_byte)
                self.stdout.write(f"[{number}] {place_title(hit.repository, hit.display_path, lines, range_)}")
        for notice in outcome.notices:
            self.stderr.write(notice)


def _question(text: str) -> str:
    if not text.strip():
        raise CommandError("The question is empty.", returncode=WRONG_USE)
    if len(text) > MAX_QUESTION_CHARS:
        raise CommandError(f"The question is longer than {MAX_QUESTION_CHARS:,} characters.", returncode=WRONG_USE)
    return text


def _repository_ids(names: list[str]) -> tuple[int, ...]:
    known = list(Repository.objects.filter(name__in=names).values_list("name", "pk"))
    if missing := sorted(set(names) - {name for name, _ in known}):
        raise CommandError(f"There is no repository named {', '.join(missing)}.", returncode=WRONG_USE)
    return tuple(pk for _, pk in known)


def _document(outcome: _Outcome) -> dict[str, Any]:  # Any: JSON
    answer = outcome.answer
    cited = set(answer.mentions.cited) if answer else set()
    verified = set(answer.verified) if answer else set()
    return {
        "answer": outcome.text,
        "citations": [
            {**citation, "cited": citation["number"] in cited, "verified": citation["number"] in verified}
            for citation in evidence_data(outcome.hits)
        ],
        "model": answer.answered_by if answer else "",
        "notices": outcome.notices,
        "finish_reason": answer.finish_reason if answer else "",
        "error": answer.error if answer else "",
        "trace": answer.trace if answer else {},
    }
