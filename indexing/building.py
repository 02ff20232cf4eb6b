"""The whole pipeline in reading order: fetch, parse, publish words, embed, publish meaning, describe, publish again.

In: an `Index` row. Out: a published index in the repository's folder, and the row's final status. Each generation is
published with one rename; a repository that had an index keeps it until the new one has vectors, so a build never
makes searching worse. A build that was killed goes on with the vectors it had. Whoever builds holds a lease.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from indexing import embedding, git, leases
from indexing.collecting import Collected, collect, display
from indexing.describing import DescribeBudget
from indexing.description_parts import describe_segments, write_descriptions
from indexing.embedding import Embedder
from indexing.errors import BuildCancelled, EmptyRepository, IndexingError, LeaseLost, MissingObject
from indexing.index_format import Coverage, Manifest, OpenIndex, ProfileInfo, Segment
from indexing.index_writing import (
    PartWriter,
    new_folder_id,
    publish,
    remove_unnamed,
    usable_manifest,
    with_parts,
)
from indexing.models import Index, Job, Repository, SkippedFile
from indexing.profiling import SAMPLE_ROWS, centroids
from indexing.progress import Progress
from indexing.quantizing import sign_bits
from indexing.vector_cache import HASH_BYTES, PARTIAL, VectorCache, reusable_index
from indexing.vectorising import SegmentRows, Vectoriser, open_segments, write_vectors
from indexing.walking import SkippedEntry, SourceFile, walk

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ACTIVE = (Index.Status.QUEUED, Index.Status.BUILDING)
SKIPPED_ROWS = 1_000  # written at a time
NAMED_FILES = 5  # in a warning

log = logging.getLogger(__name__)


def _ignore(_line: str) -> None:
    pass


# Asking for a build.


def request_build(repository: Repository, *, user: User | None = None) -> Index:
    """The repository's active build, or a new one that a worker starts once this transaction is committed."""
    index, created = _open_build(repository)
    if created:
        from indexing.tasks import enqueue

        log.info("user %s asked for index %d of repository %d", user.pk if user else "-", index.pk, repository.pk)
        transaction.on_commit(lambda: enqueue(index.pk))
    return index


def build_now(repository: Repository, *, on_progress: Callable[[str], None] = _ignore) -> Index:
    """Build in this process, for commands. `on_progress` gets a line about once a second.

    Returns the finished index; an empty repository is one of status EMPTY. Raises IndexingError when it failed, or
    when another process has the build.
    """
    index, _ = _open_build(repository)
    if not run_build(index.pk, on_progress=on_progress):
        raise IndexingError(f"{repository.name} is being indexed by another process. Wait for it, or stop it first.")
    index.refresh_from_db()
    if index.status in (Index.Status.FAILED, Index.Status.CANCELLED):
        raise IndexingError(index.error)
    return index


def _open_build(repository: Repository) -> tuple[Index, bool]:
    """Joins the active build: there is at most one per repository, which the database enforces."""
    with suppress(IntegrityError), transaction.atomic():
        index = Index.objects.create(repository=repository)
        Job.objects.create(index=index)
        return index, True
    return Index.objects.get(repository=repository, status__in=ACTIVE), False


# Running it.


def run_build(index_id: int, *, on_progress: Callable[[str], None] = _ignore) -> bool:
    """Build under a lease and write how it ended. False when there was nothing to do for this worker.

    Whatever goes wrong ends on the row as a sentence; the last good index stays. Only an interrupt is raised again.
    """
    lease = leases.claim(index_id)
    if lease is None:
        return False
    index = Index.objects.select_related("repository__mirror").get(pk=index_id)
    index.status, index.started_at = Index.Status.BUILDING, index.started_at or timezone.now()
    index.save(update_fields=["status", "started_at"])
    with lease:
        try:
            build_index(index, on_progress=on_progress, check=lease.check)
            _end(index, lease, Job.State.DONE, Index.Status.READY)
        except EmptyRepository as error:
            _end(index, lease, Job.State.DONE, Index.Status.EMPTY, str(error))
        except BuildCancelled as error:
            _end(index, lease, Job.State.CANCELLED, Index.Status.CANCELLED, str(error))
        except LeaseLost as error:
            log.warning("%s", error)
        except leases.WorkerStopping:
            log.info("this worker ends; index %d goes on in the next one", index.pk)
            lease.hand_back()
        except IndexingError as error:
            log.warning("index %d failed: %s", index.pk, error)
            _end(index, lease, Job.State.FAILED, Index.Status.FAILED, str(error))
        except Exception as error:
            log.exception("index %d failed", index.pk)
            _end(index, lease, Job.State.FAILED, Index.Status.FAILED, _failure(index, error))
        except KeyboardInterrupt:
            _end(index, lease, Job.State.CANCELLED, Index.Status.CANCELLED, "Interrupted. Retry goes on from there.")
            raise
    return True


def _end(index: Index, lease: leases.Lease, state: Job.State, status: Index.Status, error: str = "") -> None:
    with transaction.atomic():
        if lease.end(state):
            index.status, index.error, index.finished_at = status, error, timezone.now()
            index.save(update_fields=["status", "error", "finished_at"])


def _failure(index: Index, error: Exception) -> str:
    directory = index.repository.index_path
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _remove_unpublished(directory)
        free = shutil.disk_usage(settings.DATA_DIR).free // 1_000_000
        return f"The disk is full: {free} MB are free in {settings.DATA_DIR}. Make room there, then retry."
    step = Index.Step(index.step).label if index.step else "starting"
    file = f", file {index.current_path}" if index.current_path else ""
    return f"Indexing failed at step {step}{file}: {type(error).__name__}. The log has the details."


def _remove_unpublished(directory: Path) -> None:
    """Whatever an attempt left that no manifest names."""
    shutil.rmtree(directory / PARTIAL, ignore_errors=True)
    remove_unnamed(directory)


# Building.


def build_index(
    index: Index,
    *,
    load_embedder: Callable[[], Embedder] | None = None,
    on_progress: Callable[[str], None] = _ignore,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Fetch, index and publish. `check` is called between files and batches; what it raises ends the build.

    Raises IndexingError; anything else is a bug or the machine's (disk full). The row keeps step and file.
    """
    build = _Build(index, load_embedder or embedding.get_embedder, Progress(index, on_progress), check)
    try:
        build.run()
    except MissingObject:
        log.warning("the mirror of index %d lacks an object; it is cloned again", index.pk)
        git.remake_mirror(index.repository.mirror, on_progress=lambda _line: check())
        build.run()


class _Build:
    """One attempt: `run` reads like the pipeline."""

    def __init__(
        self, index: Index, load_embedder: Callable[[], Embedder], progress: Progress, check: Callable[[], None]
    ) -> None:
        self.index = index
        self.repository = index.repository
        self.directory = index.repository.index_path
        self.load_embedder = load_embedder
        self.progress = progress
        self.check = check

    def run(self) -> None:
        self.fetch()
        before = self.prepare()
        collected = self.collect(may_publish_early=before is None)
        if before is None or not before.coverage.vectors:
            self.publish_words()
        embedder = self.load_embedder()
        published = reusable_index(OpenIndex(self.directory, before)) if before else None
        with VectorCache(self.directory, embedder.info, published=published) as cache:
            vectoriser = Vectoriser(embedder, cache, check=self.check, on_progress=self.chunks_done)
            segments = open_segments(self.directory, collected.segments)
            rows = self.vectorise(vectoriser, segments)
            self.publish_vectors(embedder, cache, rows, collected)
            if settings.DESCRIBE_CHUNKS and settings.LLM_MODEL:
                self.describe(vectoriser, cache, rows)
            cache.discard_partial()
        remove_unnamed(self.directory)
        self.progress.write()

    def fetch(self) -> None:
        mirror = self.repository.mirror
        self.progress.start(Index.Step.FETCH)
        git.ensure_mirror(mirror, on_progress=lambda _line: self.check())
        self.index.commit = git.resolve(mirror.path, self.repository.ref, mirror.default_branch)
        git.pin(mirror.path, self.index.commit)
        Repository.objects.filter(pk=self.repository.pk).update(checked_at=timezone.now())

    def prepare(self) -> Manifest | None:
        """Clears what earlier attempts left; returns the published manifest when it can be used."""
        self.directory.mkdir(parents=True, exist_ok=True)
        before = usable_manifest(self.directory)
        remove_unnamed(self.directory)
        self.manifest = Manifest(
            repository_id=self.repository.pk,
            index_id=self.index.pk,
            commit=self.index.commit,
            generation=before.generation if before else 0,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=None,
            segments=(),
        )
        return before

    def collect(self, *, may_publish_early: bool) -> Collected:
        """Segments that can be searched by words. A first build publishes each one as it is finished."""
        index = self.index
        index.warnings, index.skipped = [], {}
        index.files_done = index.files_known = index.chunks_done = index.chunks_known = 0
        index.chunks_per_second = 0
        SkippedFile.objects.filter(index=index).delete()
        self.progress.start(Index.Step.WALK)
        index.files_known = sum(1 for _ in git.list_tree(self.repository.mirror.path, index.commit))
        self.progress.start(Index.Step.CHUNK)
        recorder = _SkipRecorder(index)

        def on_entry(entry: SourceFile | SkippedEntry, collected: Collected) -> None:
            self.check()
            if isinstance(entry, SkippedEntry):
                recorder.add(entry)
            index.files_done += 1
            index.chunks_known = collected.chunks
            self.progress.at(display(entry.path))

        collected = Collected()
        for collected in collect(self.entries(), directory=self.directory, index_id=index.pk, on_entry=on_entry):
            done = index.files_done / index.files_known if index.files_known else 1.0
            self.manifest = replace(
                self.manifest, segments=tuple(collected.segments), coverage=Coverage(lexical=round(done, 4))
            )
            if may_publish_early and done < 1.0:
                self.publish_words()
        recorder.flush()
        if collected.failed and not collected.files:
            raise IndexingError(f"None of the files could be read, among them {_names(collected.failed)}. See the log.")
        index.skipped = dict(collected.skipped)
        self.manifest = replace(self.manifest, coverage=Coverage(lexical=1.0), profile=_profile(collected))
        self._warn_about(collected)
        return collected

    def entries(self) -> Iterator[SourceFile | SkippedEntry]:
        return walk(self.repository.mirror.path, self.index.commit, max_file_bytes=settings.MAX_FILE_BYTES)

    def _warn_about(self, collected: Collected) -> None:
        for reason, files in collected.fallbacks.most_common():
            self.progress.warn(f"{files} {'file was' if files == 1 else 'files were'} cut by lines: {reason}")
        if collected.failed:
            self.progress.warn(f"Left out because reading them failed: {_names(collected.failed)}.")

    def publish_words(self) -> None:
        """Makes the repository searchable when it was not before."""
        self._publish()
        self.index.lexical_at = self.index.lexical_at or timezone.now()
        self._make_current()

    def vectorise(self, vectoriser: Vectoriser, segments: list[Segment]) -> list[SegmentRows]:
        self.index.chunks_done = 0
        self.progress.start(Index.Step.EMBED)
        too_long = vectoriser.embedder.too_long
        rows = vectoriser.vectorise(self.entries(), segments)
        if vectoriser.left_out:
            self.progress.warn(f"Found by words only, not by meaning: {_names(vectoriser.left_out)}.")
        if cut := vectoriser.embedder.too_long - too_long:
            self.progress.warn(f"{cut} texts were longer than the embedding model reads; their ends do not count.")
        return rows

    def chunks_done(self, chunks: int, embedded: bool, path: bytes) -> None:
        self.index.chunks_done += chunks
        if embedded:
            self.progress.embedded(chunks)
        self.progress.at(display(path))

    def publish_vectors(
        self, embedder: Embedder, cache: VectorCache, rows: list[SegmentRows], collected: Collected
    ) -> None:
        self.progress.start(Index.Step.PUBLISH)
        suffix = f".{self.manifest.generation + 1}"
        for segment in rows:
            parts = write_vectors(segment, directory=self.directory, cache=cache, suffix=suffix)
            segment.info = with_parts(segment.info, parts)
        with_vectors = sum(sum(1 for count in segment.lists["code"].counts if count) for segment in rows)
        self.manifest = replace(
            self.manifest,
            model=embedder.info,
            segments=tuple(segment.info for segment in rows),
            coverage=replace(
                self.manifest.coverage,
                vectors=round(with_vectors / collected.chunks, 4) if collected.chunks else 1.0,
            ),
            profile=self._profile_with_centroids(cache, rows),
        )
        self._publish()
        self.index.lexical_at = self.index.lexical_at or timezone.now()
        self.index.vectors_at = timezone.now()
        self.index.chunks_done = self.index.chunks_known
        self._make_current()

    def _profile_with_centroids(self, cache: VectorCache, rows: list[SegmentRows]) -> ProfileInfo:
        hashes = b"".join(bytes(segment.lists["descriptions"].hashes) for segment in rows)
        step = -(-len(hashes) // HASH_BYTES // SAMPLE_ROWS) or 1
        sample = b"".join(hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES * step))
        blocks = [*cache.blocks(sample), np.zeros((0, cache.dimensions), dtype=np.float16)]
        floats, weights = centroids(np.concatenate(blocks))
        parts = PartWriter(self.directory, folder=new_folder_id(self.index.pk))
        parts.add("centroids.floats", floats)
        parts.add("centroids.bits", sign_bits(floats))
        parts.add("centroids.weights", weights)
        parts.sync()
        return replace(self.manifest.profile, id=parts.path.name, parts=parts.parts)

    def describe(self, vectoriser: Vectoriser, cache: VectorCache, rows: list[SegmentRows]) -> None:
        """The index is complete without this; a model that fails leaves a warning, not a failed build."""
        index = self.index
        index.descriptions_done, index.descriptions_known = 0, min(index.chunks_known, settings.DESCRIBE_MAX_CHUNKS)
        self.progress.start(Index.Step.DESCRIBE)

        def on_described(count: int) -> None:
            self.check()
            index.descriptions_done = count
            self.progress.at("")

        segments = open_segments(self.directory, (segment.info for segment in rows))
        budget = DescribeBudget.from_settings()
        described = describe_segments(
            self.entries(), segments, repository_id=self.repository.pk, budget=budget, on_described=on_described
        )
        if budget.warning:
            self.progress.warn(budget.warning)
        index.descriptions_known = index.descriptions_done
        if any(described):
            self._publish_descriptions(vectoriser, cache, rows, segments, described)

    def _publish_descriptions(
        self,
        vectoriser: Vectoriser,
        cache: VectorCache,
        rows: list[SegmentRows],
        segments: list[Segment],
        described: list[dict[int, str]],
    ) -> None:
        self.progress.start(Index.Step.PUBLISH)
        suffix = f".{self.manifest.generation + 1}"
        for segment, reader, texts in zip(rows, segments, described, strict=True):
            parts = write_descriptions(
                segment, reader, texts, directory=self.directory, vectoriser=vectoriser, cache=cache, suffix=suffix
            )
            segment.info = with_parts(segment.info, parts)
        share = sum(map(len, described)) / max(self.index.chunks_known, 1)
        self.manifest = replace(
            self.manifest,
            segments=tuple(segment.info for segment in rows),
            coverage=replace(self.manifest.coverage, descriptions=round(share, 4)),
        )
        self._publish()

    def _publish(self) -> None:
        self.check()
        self.manifest = replace(self.manifest, generation=self.manifest.generation + 1)
        publish(self.directory, self.manifest)
        parts = [part for info in self.manifest.segments for part in info.parts.values()]
        self.index.size_bytes = sum(part.bytes for part in parts)

    def _make_current(self) -> None:
        with transaction.atomic():
            self.progress.write()
            Repository.objects.filter(pk=self.repository.pk).update(current_index=self.index)


class _SkipRecorder:
    def __init__(self, index: Index) -> None:
        self._index = index
        self._rows: list[SkippedFile] = []

    def add(self, entry: SkippedEntry) -> None:
        path, detail = display(entry.path)[:1000], entry.detail[:300]
        self._rows.append(SkippedFile(index=self._index, path=path, reason=entry.reason.value, detail=detail))
        if len(self._rows) >= SKIPPED_ROWS:
            self.flush()

    def flush(self) -> None:
        SkippedFile.objects.bulk_create(self._rows)
        self._rows = []


def _profile(collected: Collected) -> ProfileInfo:
    return ProfileInfo(languages=dict(collected.languages), terms=collected.names.top(), readme=collected.readme)


def _names(paths: list[bytes]) -> str:
    shown = ", ".join(display(path) for path in paths[:NAMED_FILES])
    return shown if len(paths) <= NAMED_FILES else f"{shown} and {len(paths) - NAMED_FILES} more"
