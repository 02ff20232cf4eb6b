"""`manage.py simulate N...`: what search, pre-filter and refreshing cost with N repositories

The repositories are copies of those that are indexed here, so words, chunks and vectors are real; each copy has a
profile of its own: centroids moved at random, half of its telling terms. Copies take disk like real ones, unless
`--link` shares the files of their segments. They are called simulated/..., and `--remove` takes them away again.
Run it on a data folder of its own: searches of people would find the copies.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from indexing.access import Principal
from indexing.index_format import Manifest, OpenIndex, open_index
from indexing.index_writing import PartWriter, new_folder_id, publish
from indexing.models import Index, Repository
from indexing.quantizing import sign_bits
from indexing.refreshing import due
from search.pipeline import search

NAMES = "simulated/"
QUESTIONS = (
    *("how are sessions signed", "where is the retry with backoff", "parse command line arguments", "read a json file"),
    *("what does the router do", "close the database connection", "how is a request validated", "write a test client"),
)
NOISE = 0.35  # of the length of a centroid: the copies are about related things, not the same


class Command(BaseCommand):
    help = "Make copies of indexed repositories up to each N and measure. Exit status: 0 ok, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("counts", metavar="N", nargs="*", type=int, help="how many repositories, rising")
        parser.add_argument("--link", action="store_true", help="share segment files instead of copying them")
        parser.add_argument("--most-chunks", type=int, default=3000, help="templates have at most so many")
        parser.add_argument("--rounds", type=int, default=3, help="how often each question is asked")
        parser.add_argument("--json", action="store_true")
        parser.add_argument("--remove", action="store_true", help="remove the copies")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        if options["remove"]:
            self.stdout.write(f"{_remove()} copies were removed.")
            return
        if not options["counts"]:
            raise CommandError("Say how many repositories, such as 100 1000 10000.", returncode=2)
        templates = _templates(options["most_chunks"])
        if not templates:
            raise CommandError("There is no indexed repository to copy. Index some first.", returncode=2)
        for count in sorted(options["counts"]):
            begun = time.perf_counter()
            made = _grow(templates, count, link=options["link"])
            row = {"made": made, "made_seconds": round(time.perf_counter() - begun, 1)} | _measure(options["rounds"])
            self.stdout.write(json.dumps(row) if options["json"] else _line(row))


def _templates(most_chunks: int) -> list[tuple[Repository, OpenIndex]]:
    own = Repository.objects.searchable().exclude(name__startswith=NAMES).select_related("mirror", "current_index")
    opened = [(repository, open_index(repository.index_path)) for repository in own.order_by("pk")]
    return [(one, index) for one, index in opened if index.manifest.model and index.manifest.chunks <= most_chunks]


def _grow(templates: list[tuple[Repository, OpenIndex]], count: int, *, link: bool) -> int:
    have = Repository.objects.searchable().count()
    for number in range(have, count):
        _copy(*templates[number % len(templates)], number, link=link)
    return max(0, count - have)


@transaction.atomic
def _copy(template: Repository, index: OpenIndex, number: int, *, link: bool) -> None:
    built = template.current_index
    assert built is not None
    copy = Repository.objects.create(
        mirror=template.mirror,
        name=f"{NAMES}{template.slug}-{number}",
        ref=f"{NAMES}{number}",
        description=template.description,
        checked_at=timezone.now(),
    )
    row = Index.objects.create(
        repository=copy,
        commit=built.commit,
        status=Index.Status.READY,
        files_done=built.files_done,
        chunks_done=built.chunks_done,
        size_bytes=built.size_bytes,
        finished_at=timezone.now(),
    )
    Repository.objects.filter(pk=copy.pk).update(current_index=row)
    _write(copy.index_path, index, replace(index.manifest, repository_id=copy.pk, index_id=row.pk), number, link=link)


def _write(directory: Path, index: OpenIndex, manifest: Manifest, number: int, *, link: bool) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    source = index.path
    for folder, name in sorted(index.manifest.file_names):
        if folder == index.manifest.profile.id:
            continue
        target = directory / "segments" / folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (os.link if link else shutil.copyfile)(source / "segments" / folder / name, target)
    directory.mkdir(parents=True, exist_ok=True)
    publish(directory, replace(manifest, profile=_other_profile(directory, index, manifest, number)))


def _other_profile(directory: Path, index: OpenIndex, manifest: Manifest, number: int) -> Any:  # Any: ProfileInfo
    chance = np.random.default_rng(number)
    profile = manifest.profile
    terms = random.Random(number).sample(profile.terms, len(profile.terms) // 2)  # noqa: S311  not for secrets
    centroids = index.profile
    if centroids is None or not len(centroids.floats):
        return replace(profile, id="", parts={}, terms=tuple(terms))
    floats = centroids.floats.astype(np.float32)
    moved = floats + chance.normal(0, NOISE / floats.shape[1] ** 0.5, floats.shape).astype(np.float32)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    parts = PartWriter(directory, folder=new_folder_id(manifest.index_id))
    parts.add("centroids.floats", moved.astype(np.float16))
    parts.add("centroids.bits", sign_bits(moved))
    parts.add("centroids.weights", np.asarray(centroids.weights))
    parts.sync()
    return replace(profile, id=parts.path.name, parts=parts.parts, terms=tuple(terms))


def _measure(rounds: int) -> dict[str, Any]:  # Any: JSON
    principal = Principal.operator()
    searchable = Repository.objects.searchable()
    chunks = sum(searchable.values_list("current_index__chunks_done", flat=True))
    begun = time.perf_counter()
    search(QUESTIONS[0], principal=principal, use_llm=False)
    first = time.perf_counter() - begun
    totals: list[float] = []
    stages: dict[str, list[float]] = {}
    cpu = time.process_time()
    for question in QUESTIONS * rounds:
        begun = time.perf_counter()
        trace = search(question, principal=principal, use_llm=False).trace
        totals.append(1000 * (time.perf_counter() - begun))
        for stage in trace.stages:
            stages.setdefault(stage.name, []).append(stage.milliseconds)
    return {
        "repositories": searchable.count(),
        "chunks": chunks,
        "disk_mb": round(sum(searchable.values_list("current_index__size_bytes", flat=True)) / 1e6),
        "first_seconds": round(first, 2),
        "search_ms": round(statistics.median(totals), 1),
        "search_p95_ms": round(sorted(totals)[int(0.95 * len(totals))], 1),
        "search_cpu_ms": round(1000 * (time.process_time() - cpu) / len(totals), 1),
        "stages_ms": {name: round(statistics.median(values), 1) for name, values in stages.items()},
        "due_ms": round(_milliseconds(lambda: list(due())), 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def _line(row: dict[str, Any]) -> str:  # Any: JSON
    stages = ", ".join(f"{name} {value}" for name, value in row["stages_ms"].items())
    return (
        f"{row['repositories']} repositories, {row['chunks']} chunks: search {row['search_ms']} ms "
        f"(95 %: {row['search_p95_ms']}, CPU {row['search_cpu_ms']}); {stages}; which are due {row['due_ms']} ms; "
        f"first search {row['first_seconds']} s; {row['memory_mb']} MB at most"
    )


def _copies() -> Iterator[Repository]:
    yield from Repository.objects.filter(name__startswith=NAMES)


def _remove() -> int:
    paths = [copy.index_path for copy in _copies()]
    Repository.objects.filter(name__startswith=NAMES).update(current_index=None)
    Index.objects.filter(repository__name__startswith=NAMES).delete()
    Repository.objects.filter(name__startswith=NAMES).delete()
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    return len(paths)
