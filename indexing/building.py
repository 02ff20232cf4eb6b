"""The whole pipeline in reading order: fetch, parse, publish words, embed, publish meaning, describe, publish again.

In: an `Index` row. Out: a published index in the repository's folder, and the row's final status. Each generation is
published with one rename; a repository that had an index keeps it until the new one has vectors, so a build never
makes searching worse. A build that was killed goes on with the vectors it had. Whoever builds holds a lease.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from indexing import embedding, git, leases, progress, queueing, sharing
from indexing.collecting import Collected, OnEntry, collect, display
from indexing.collecting_beside import Done, Tree, collect_beside
from indexing.compacting import compact
from indexing.describing import DescribeBudget
from indexing.description_parts import describe_segments, with_descriptions
from indexing.embedding import Embedder
from indexing.errors import (
    BuildCancelled,
    DamagedIndex,
    EmptyRepository,
    IndexingError,
    LeaseLost,
    MissingObject,
    VectorsUnavailable,
)
from indexing.index_format import Coverage, Manifest, ModelInfo, OpenIndex, ProfileInfo, Segment, SegmentInfo
from indexing.index_writing import (
    PartWriter,
    new_folder_id,
    publish,
    remove_unnamed,
    usable_manifest,
)
from indexing.models import Index, Job, Repository, SkippedFile
from indexing.profiling import centroids, sample_of_descriptions, telling_terms
from indexing.progress import Progress
from indexing.quantizing import sign_bits
from indexing.skipping import SkipRecorder, remove_skipped, remove_skipped_before
from indexing.suspects import Suspects
from indexing.updating import (
    Update,
    can_be_opened,
    chunking_fingerprint,
    gone_descriptions,
    gone_languages,
    inherited,
    kept_segments,
    offer_gone_vectors,
    plan_update,
    published_base,
    unchanged_cut_by_lines,
    updated_readme,
)
from indexing.vector_cache import PARTIAL, VectorCache, reusable_index
from indexing.vector_filling import fill_repository
from indexing.vectorising import Vectoriser, open_segments
from indexing.walking import SkippedEntry, SourceFile, walk

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ACTIVE = (Index.Status.QUEUED, Index.Status.BUILDING)
STALE_SHARE = 0.1  # of the files: after that many changes the profile is made anew
FIRST_SLICE = 100  # descriptions
# A build that gave way parses its files again: its turn is at least so many times as long as that took.
TURN_SECONDS, TURN_FACTOR = 300.0, 10
LOOK_SECONDS = 5.0  # between two looks at the queue
NAMED_FILES = 5  # in a warning
FILES_FOR_TWO = 1_000  # the second process takes a second to start

log = logging.getLogger(__name__)


def _ignore(_line: str) -> None:
    pass


# Asking for a build.


def request_build(
    repository: Repository,
    *,
    user: User | None = None,
    rebuild: bool = False,
    priority: Job.Priority = Job.Priority.PERSON,
) -> Index:
    """The repository's active build, or a new one that a worker starts once this transaction is committed.

    `rebuild`: every file is parsed again, and of the published index only vectors with the right checksum are used.
    """
    return _requested(repository, user=user, rebuild=rebuild, priority=priority)[0]


def _requested(
    repository: Repository, *, user: User | None = None, rebuild: bool = False, priority: Job.Priority
) -> tuple[Index, bool]:
    """As `request_build`, and whether the build is new."""
    index, created = open_build(repository, rebuild=rebuild, priority=priority)
    if created:
        from indexing.tasks import enqueue

        log.info("user %s asked for index %d of repository %d", user.pk if user else "-", index.pk, repository.pk)
        transaction.on_commit(lambda: enqueue(index.pk))
    else:
        queueing.move_up(index, priority)
    return index, created


def request_update(repository: Repository, *, priority: Job.Priority = Job.Priority.PUSH) -> Index:
    """Because the source has newer commits: a build that fetched before it heard of them is followed by another."""
    while True:
        index, created = _requested(repository, priority=priority)
        # A new one fetches after this, however quickly a worker took it.
        waits = created or Job.objects.filter(index=index, state=Job.State.QUEUED).exists()
        if waits or Job.objects.filter(index=index, state=Job.State.RUNNING).update(again=True):
            return index


def build_now(repository: Repository, *, rebuild: bool = False, on_progress: Callable[[str], None] = _ignore) -> Index:
    """Build in this process, for commands. `on_progress` gets a line about once a second.

    Returns the finished index; an empty repository is one of status EMPTY. Raises IndexingError when it failed, or
    when another process has the build.
    """
    index, _ = open_build(repository, rebuild=rebuild)
    if not run_build(index.pk, on_progress=on_progress):
        raise IndexingError(f"{repository.name} is being indexed by another process. Wait for it, or stop it first.")
    index.refresh_from_db()
    if index.status in (Index.Status.FAILED, Index.Status.CANCELLED):
        raise IndexingError(index.error)
    return index


def open_build(
    repository: Repository, *, rebuild: bool = False, priority: Job.Priority = Job.Priority.PERSON
) -> tuple[Index, bool]:
    """A new build of this process, or the active one, which is joined: the database allows one per repository."""
    with suppress(IntegrityError), transaction.atomic():
        index = Index.objects.create(repository=repository, rebuild=rebuild)
        Job.objects.create(index=index, priority=priority, due_at=queueing.place(repository.pk, priority))
        return index, True
    index = Index.objects.get(repository=repository, status__in=ACTIVE)
    if rebuild:
        Index.objects.filter(pk=index.pk, status=Index.Status.QUEUED).update(rebuild=True)
    return index, False


# Running it.


def run_build(index_id: int, *, gives_way: bool = False, on_progress: Callable[[str], None] = _ignore) -> bool:
    """Build under a lease and write how it ended. False when there was nothing to do for this worker.

    With `gives_way` a long build lets others that wait go first after its turn, and is queued again behind them.
    """

    def work(index: Index, check: Callable[[], None]) -> None:
        build_index(index, on_progress=on_progress, check=check, gives_way=gives_way)

    return run_under_lease(index_id, work)


def run_under_lease(index_id: int, work: Callable[[Index, Callable[[], None]], None]) -> bool:
    """Call work(index, check) if nobody else does. False when there was nothing to do.

    Whatever goes wrong ends on the row as a sentence; the last good index stays. Only an interrupt is raised again.
    """
    lease = leases.claim(index_id)
    if lease is None:
        return False
    index = Index.objects.select_related("repository__mirror", "repository__current_index").get(pk=index_id)
    index.status, index.started_at = Index.Status.BUILDING, index.started_at or timezone.now()
    index.save(update_fields=["status", "started_at"])
    with lease:
        try:
            work(index, lease.check)
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
        except leases.GivingWay:
            log.info("index %d gives way to others", index.pk)
            _queue_again(index, lease, Job.Queue.BUILDS)
        except leases.DescribingLater:
            _queue_again(index, lease, Job.Queue.DESCRIPTIONS)
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
        if not lease.end(state):
            return
        index.status, index.error, index.finished_at = status, error, timezone.now()
        where = () if state == Job.State.DONE else progress.FIELDS  # exactly where it stopped
        index.save(update_fields=["status", "error", "finished_at", *where])
        if state == Job.State.DONE and Job.objects.filter(index=index, again=True).exists():
            request_build(index.repository)


def _queue_again(index: Index, lease: leases.Lease, queue: Job.Queue) -> None:
    from indexing.tasks import enqueue

    newer = leases.asked_again(index.pk)
    lease.hand_back()
    queueing.send_back(index.pk, queue=Job.Queue.BUILDS if newer else queue)
    enqueue(index.pk)


def _failure(index: Index, error: Exception) -> str:
    directory = index.repository.index_path
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _remove_unpublished(directory)
        place = directory.parent if directory.parent.exists() else settings.DATA_DIR  # may be a volume of its own
        free = shutil.disk_usage(place).free // 1_000_000
        return f"The disk is full: {free} MB are free in {place}. Make room there, then retry."
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
    gives_way: bool = False,
) -> None:
    """Fetch, index and publish. `check` is called between files and batches; what it raises ends the build.

    Raises IndexingError; anything else is a bug or the machine's (disk full). The row keeps step and file.
    """
    build = _Build(
        index, load_embedder or embedding.get_embedder, Progress(index, on_progress), check, gives_way=gives_way
    )
    try:
        build.run()
    except MissingObject:
        log.warning("the mirror of index %d lacks an object; it is cloned again", index.pk)
        git.remake_mirror(index.repository.mirror, on_progress=lambda _line: check())
        build.run()
    except DamagedIndex:
        if build.update is None:
            raise
        log.warning("the published index of repository %d is damaged; it is made anew", index.repository_id)
        index.rebuild = True
        build.run()


class _Build:
    """One attempt: `run` reads like the pipeline. `update` is None when every file is parsed."""

    def __init__(
        self,
        index: Index,
        load_embedder: Callable[[], Embedder],
        progress: Progress,
        check: Callable[[], None],
        *,
        gives_way: bool,
    ) -> None:
        self.index = index
        self.repository = index.repository
        self.directory = index.repository.index_path
        self.mirror_path = index.repository.mirror.path
        self.load_embedder = load_embedder
        self.progress = progress
        self.check = check
        self.update: Update | None = None
        self.gives_way = gives_way
        self.started = time.monotonic()
        self.turn_seconds = TURN_SECONDS
        self.looked_at = self.started

    def run(self) -> None:
        self.fetch()
        before = self.prepare()
        with Suspects(self.directory / PARTIAL) as self.suspects:
            self.index_files(before)
        remove_unnamed(self.directory)
        self.fill_vectors()
        self.progress.write()

    def index_files(self, before: Manifest | None) -> None:
        if self.suspects.is_new:
            leases.pardon(self.index.pk)
        self.update = None if self.index.rebuild else self.find_update(before)
        searchable = before is not None and bool(before.coverage.vectors)
        collected = self.collect(may_publish_early=not searchable)
        if not searchable:
            self.publish_words()
        self.turn_seconds = max(TURN_SECONDS, TURN_FACTOR * (time.monotonic() - self.started))
        model = self.model()
        with self.vector_cache(model, before) as cache:
            vectoriser = Vectoriser(
                self.load_embedder,
                cache,
                model,
                suspects=self.suspects,
                check=self.check_turn,
                on_progress=self.chunks_done,
            )
            segments = self.vectorise(vectoriser, open_segments(self.directory, collected.segments), model)
            self.publish_vectors(model, segments, collected)
            self.fill_vectors()
            self.describe(vectoriser)
            cache.discard_partial()

    def check_turn(self) -> None:
        """Between batches, whose vectors are kept: only there is little lost when the build gives way."""
        self.check()
        now = time.monotonic()
        if not self.gives_way or now < self.started + self.turn_seconds or now < self.looked_at + LOOK_SECONDS:
            return
        self.looked_at = now
        if queueing.others_wait(self.index.pk):
            raise leases.GivingWay

    def check_describing(self) -> None:
        """Descriptions take long and can be gone on with: newer commits come first."""
        self.check()
        now = time.monotonic()
        if self.gives_way and now >= self.looked_at + LOOK_SECONDS:
            self.looked_at = now
            if leases.asked_again(self.index.pk):
                raise leases.GivingWay

    def fetch(self) -> None:
        mirror = self.repository.mirror
        self.progress.start(Index.Step.FETCH)
        git.ensure_mirror(mirror, on_progress=lambda _line: self.check())
        self.index.commit = git.resolve(mirror.path, self.repository.ref, mirror.default_branch)
        git.pin(mirror.path, self.index.commit)
        Repository.objects.filter(pk=self.repository.pk).update(
            checked_at=timezone.now(), check_error="", commits_behind=self._commits_behind()
        )

    def _commits_behind(self) -> int:
        current = self.repository.current_index
        if current is None or current.commit == self.index.commit:
            return 0
        with suppress(MissingObject):  # after a force-push the old commit may be gone
            return git.commits_between(self.mirror_path, current.commit, self.index.commit)
        return 1

    def prepare(self) -> Manifest | None:
        """Clears what earlier attempts left; returns the published manifest when searches can use its index."""
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
            chunking=chunking_fingerprint(self.repository),
        )
        return before if can_be_opened(self.directory) else None

    def find_update(self, before: Manifest | None) -> Update | None:
        """How the published index becomes one of this commit, or None when it cannot.

        The list of skipped files in the database has to be that of the published index: a kill between publishing
        the one and the other leaves them apart.
        """
        current = self.repository.current_index
        if before is None or current is None or current.pk != before.index_id:
            return None
        base = published_base(self.directory, before, fingerprint=self.manifest.chunking)
        if base is None or before.model is None or not embedding.is_current(before.model, self.load_embedder):
            return None
        skipped = sum(current.skipped.values())
        return plan_update(base, self.mirror_path, self.index.commit, skipped=skipped)

    def collect(self, *, may_publish_early: bool) -> Collected:
        """Segments that can be searched by words. A first build publishes each one as it is finished."""
        index = self.index
        index.warnings, index.skipped = [], {}
        index.files_done = index.chunks_done = index.chunks_per_second = 0
        index.chunks_known = kept = self._kept_chunks()
        SkippedFile.objects.filter(index=index).delete()
        self.progress.start(Index.Step.WALK)
        index.files_known = self._files_to_read()
        self.progress.start(Index.Step.CHUNK)
        self.recorder = SkipRecorder(index, keep=self.update is not None)

        def on_entry(entry: SourceFile | SkippedEntry, chunks: int) -> None:
            self.check()
            if isinstance(entry, SkippedEntry):
                self.recorder.add(entry)
            index.files_done += 1
            index.chunks_known = kept + chunks
            self.progress.at(display(entry.path))

        collected = Collected()
        for collected in self._pieces(on_entry):
            done = index.files_done / index.files_known if index.files_known else 1.0
            self.manifest = replace(
                self.manifest, segments=tuple(collected.segments), coverage=Coverage(lexical=round(done, 4))
            )
            if may_publish_early and done < 1.0:
                self.publish_words()
        self.recorder.flush()
        collected.segments = compact(self.directory, collected.segments, segment_id=new_folder_id(index.pk))
        self.manifest = replace(self.manifest, segments=tuple(collected.segments))
        if collected.failed and not collected.files and not kept:
            raise IndexingError(f"None of the files could be read, among them {_names(collected.failed)}. See the log.")
        index.skipped = dict(collected.skipped)
        self.manifest = replace(self.manifest, coverage=Coverage(lexical=1.0), profile=_profile(collected))
        self._warn_about(collected)
        return collected

    def _pieces(self, on_entry: OnEntry) -> Iterator[Collected]:
        """Two processes where that is worth starting one; an update is read in this one."""
        index = self.index
        if self.update is not None or index.files_known < FILES_FOR_TWO or (os.cpu_count() or 1) < 2:
            return collect(
                self.entries(), directory=self.directory, index_id=index.pk, suspects=self.suspects, on_entry=on_entry
            )

        def on_done(done: Done, chunks: int) -> None:
            for entry in done.skipped:
                self.recorder.add(entry)
            index.files_done += done.files
            index.chunks_known = chunks

        return collect_beside(
            Tree(
                self.mirror_path,
                index.commit,
                self.repository.file_limit,
                self.repository.file_rules,
                self.directory,
                index.pk,
            ),
            git.list_tree(self.mirror_path, index.commit),
            suspects=self.suspects,
            on_entry=on_entry,
            on_done=on_done,
            check=self.check,
        )

    def _kept_chunks(self) -> int:
        """Chunks of files that did not change."""
        return 0 if self.update is None else self.update.base.chunk_count - sum(gone_languages(self.update).values())

    def _files_to_read(self) -> int:
        if self.update is not None:
            return len(self.update.entries)
        return sum(1 for _ in git.list_tree(self.mirror_path, self.index.commit))

    def entries(self) -> Iterator[SourceFile | SkippedEntry]:
        if self.update is not None and not self.update.entries:
            return iter(())
        only = None if self.update is None else self.update.entries
        return walk(
            self.mirror_path,
            self.index.commit,
            max_file_bytes=self.repository.file_limit,
            only=only,
            chosen=self.repository.file_rules,
        )

    def _warn_about(self, collected: Collected) -> None:
        unchanged = Counter() if self.update is None else unchanged_cut_by_lines(self.update)
        for reason, files in (collected.fallbacks + unchanged).most_common():
            self.progress.warn(f"{files} {'file was' if files == 1 else 'files were'} cut by lines: {reason}")
        if collected.failed:
            self.progress.warn(f"Left out because reading them failed: {_names(collected.failed)}.")

    def publish_words(self) -> None:
        """Makes the repository searchable when it was not before."""
        self._publish()
        self.index.lexical_at = self.index.lexical_at or timezone.now()
        self._make_current()

    def model(self) -> ModelInfo:
        """Of an update that of its base: loading it takes seconds, and there may be nothing to embed."""
        base = self.update.base.manifest.model if self.update is not None else None
        return base or self.load_embedder().info

    def vector_cache(self, model: ModelInfo, before: Manifest | None) -> VectorCache:
        """What need not be embedded: an update looks into the rows it replaces, a whole build into the whole index."""
        if self.update is None:
            published = reusable_index(OpenIndex(self.directory, before)) if before else None
            return VectorCache(self.directory, model, published=published)
        cache = VectorCache(self.directory, model, published=None)
        offer_gone_vectors(self.update, cache)
        return cache

    def vectorise(self, vectoriser: Vectoriser, segments: list[Segment], model: ModelInfo) -> list[SegmentInfo]:
        self.index.chunks_done = self._kept_chunks()
        self.progress.start(Index.Step.EMBED)
        with self._shared(vectoriser.cache, segments, model) as on_file:
            done = vectoriser.vectorise(
                self.mirror_path, segments, directory=self.directory, suffix=self._suffix(), on_file=on_file
            )
        if vectoriser.left_out:
            self.progress.warn(f"Found by words only, not by meaning: {_names(vectoriser.left_out)}.")
        if cut := vectoriser.too_long:
            self.progress.warn(f"{cut} texts were longer than the embedding model reads; their ends do not count.")
        return done

    def _shared(
        self, cache: VectorCache, segments: list[Segment], model: ModelInfo
    ) -> AbstractContextManager[Callable[[str, int], None]]:
        """Other workers may help where much is new: they do not see the vectors of the published index."""
        from indexing.tasks import call_helper

        chunks = sum(segment.info.chunks for segment in segments)
        if chunks < sharing.OFFERED_FROM_CHUNKS or cache.reusable > chunks:
            return nullcontext(lambda _segment, _file_row: None)
        return sharing.offered(self.directory, replace(self.manifest, model=model), segments, call=call_helper)

    def _suffix(self) -> str:
        """For files of a further generation; unlike that of an attempt that was killed at this point."""
        return f".{new_folder_id(self.index.pk)}"

    def chunks_done(self, chunks: int, embedded: bool, path: bytes) -> None:
        self.index.chunks_done += chunks
        if embedded:
            self.progress.embedded(chunks)
        self.progress.at(display(path))

    def publish_vectors(self, model: ModelInfo, segments: list[SegmentInfo], collected: Collected) -> None:
        self.progress.start(Index.Step.PUBLISH)
        if self.update is not None:
            segments = kept_segments(self.directory, self.update, suffix=self._suffix()) + segments
            segments = compact(self.directory, segments, segment_id=new_folder_id(self.index.pk))
        self.manifest = replace(self.manifest, model=model, segments=tuple(segments))
        self.manifest = replace(self.manifest, coverage=self._coverage())
        self.manifest = replace(self.manifest, profile=self._whole_profile(collected))
        self._publish()
        self.index.lexical_at = self.index.lexical_at or timezone.now()
        self.index.vectors_at = timezone.now()
        self.index.chunks_done = self.index.chunks_known = self.manifest.chunks
        self._make_current()

    def _coverage(self) -> Coverage:
        chunks, segments = self.manifest.chunks, self.manifest.segments
        return Coverage(
            lexical=1.0,
            vectors=round(sum(segment.embedded for segment in segments) / chunks, 4) if chunks else 1.0,
            descriptions=round(sum(segment.described for segment in segments) / chunks, 4) if chunks else 0.0,
        )

    def _whole_profile(self, collected: Collected) -> ProfileInfo:
        """After an update terms and centroids stay until enough has changed to move them."""
        readers = open_segments(self.directory, self.manifest.segments)
        if self.update is None:
            return self._with_centroids(self.manifest.profile, readers)
        old = self.update.base.manifest.profile
        languages = Counter(old.languages)
        languages.subtract(gone_languages(self.update))
        languages.update(collected.languages)
        profile = replace(
            old,
            languages=dict(+languages),
            readme=updated_readme(self.update, collected.readme, self.mirror_path),
            changed_files=old.changed_files + self.update.changes,
        )
        if profile.changed_files <= STALE_SHARE * self.manifest.files:
            return profile
        return self._with_centroids(replace(profile, terms=telling_terms(readers), changed_files=0), readers)

    def _with_centroids(self, profile: ProfileInfo, readers: list[Segment]) -> ProfileInfo:
        assert self.manifest.model is not None
        floats, weights = centroids(sample_of_descriptions(readers, self.manifest.model.dimensions))
        parts = PartWriter(self.directory, folder=new_folder_id(self.index.pk))
        parts.add("centroids.floats", floats)
        parts.add("centroids.bits", sign_bits(floats))
        parts.add("centroids.weights", weights)
        parts.sync()
        return replace(profile, id=parts.path.name, parts=parts.parts)

    def fill_vectors(self) -> None:
        """Where vectors are searched in Milvus. A server that is away gets them later, from a scheduler."""
        try:
            fill_repository(self.repository)
        except VectorsUnavailable as error:
            self.progress.warn(f"Not searchable by meaning yet: {error}")

    def describe(self, vectoriser: Vectoriser) -> None:
        """The index is complete without this; a model that fails leaves a warning, not a failed build."""
        segments = open_segments(self.directory, self.manifest.segments)
        if self.update is not None and (known := gone_descriptions(self.update)):
            self._publish_descriptions(vectoriser, inherited(segments, known))
            segments = open_segments(self.directory, self.manifest.segments)
        if not (settings.DESCRIBE_CHUNKS and settings.LLM_MODEL):
            return
        if self.gives_way and not Job.objects.filter(index=self.index, queue=Job.Queue.DESCRIPTIONS).exists():
            raise leases.DescribingLater
        if self.update is not None and self.update.base.manifest.all_described:
            old = {segment.info.id for segment in self.update.base.segments}
            segments = [segment for segment in segments if segment.info.id not in old]
        self._describe(vectoriser, segments)

    def _describe(self, vectoriser: Vectoriser, segments: list[Segment]) -> None:
        """Published in slices, each half as large as all before it, so that writing them costs little."""
        index, budget = self.index, DescribeBudget.from_settings()
        index.descriptions_done = sum(segment.described for segment in self.manifest.segments)
        index.descriptions_known = min(index.chunks_known, index.descriptions_done + settings.DESCRIBE_MAX_CHUNKS)
        self.progress.start(Index.Step.DESCRIBE)
        waiting: dict[str, dict[int, str]] = {}
        unpublished = 0
        found = describe_segments(self.mirror_path, segments, repository_id=self.repository.pk, budget=budget)
        for number, row, text in found:
            self.check_describing()
            waiting.setdefault(segments[number].info.id, {})[row] = text
            unpublished += 1
            index.descriptions_done += 1
            self.progress.at("")
            if unpublished >= max(FIRST_SLICE, (index.descriptions_done - unpublished) // 2):
                self._publish_descriptions(vectoriser, waiting)
                self.progress.start(Index.Step.DESCRIBE)
                waiting, unpublished = {}, 0
        if budget.warning:
            self.progress.warn(budget.warning)
        index.descriptions_known = index.descriptions_done
        self.manifest = replace(self.manifest, all_described=not budget.warning)
        self._publish_descriptions(vectoriser, waiting)

    def _publish_descriptions(self, vectoriser: Vectoriser, texts: Mapping[str, Mapping[int, str]]) -> None:
        """texts: segment id -> chunk row -> sentences."""
        self.progress.start(Index.Step.PUBLISH)
        suffix = self._suffix()
        segments = []
        for reader in open_segments(self.directory, self.manifest.segments):
            info = reader.info
            if found := texts.get(info.id):
                info = with_descriptions(reader, found, directory=self.directory, vectoriser=vectoriser, suffix=suffix)
            segments.append(info)
        self.manifest = replace(self.manifest, segments=tuple(segments))
        self.manifest = replace(self.manifest, coverage=self._coverage())
        self._publish()

    def _publish(self) -> None:
        self.check()
        self.manifest = replace(self.manifest, generation=self.manifest.generation + 1)
        publish(self.directory, self.manifest)
        parts = [part for info in self.manifest.segments for part in info.parts.values()]
        self.index.size_bytes = sum(part.bytes for part in parts)

    def _make_current(self) -> None:
        with transaction.atomic():
            if self.manifest.model is not None:
                self._finish_skip_list()
            self.progress.write()
            Repository.objects.filter(pk=self.repository.pk).update(current_index=self.index, commits_behind=0)

    def _finish_skip_list(self) -> None:
        """An update changes the list of the build before it; a whole build has its own, and drops older ones."""
        index = self.index
        if self.update is None or self.update.lists_all:
            self.recorder.write()
            remove_skipped_before(index)
        else:
            current = self.repository.current_index
            assert current is not None
            index.skips_of_id = current.skips_of_id or current.pk
            index.save(update_fields=["skips_of"])
            over = remove_skipped(index.skips_of_id, self.update.paths)
            index.skipped = dict(Counter(current.skipped) - over + Counter(index.skipped))
            self.recorder.write(index.skips_of_id)
        index.files_done = index.files_known = self.manifest.files + sum(index.skipped.values())


def _profile(collected: Collected) -> ProfileInfo:
    return ProfileInfo(languages=dict(collected.languages), terms=collected.names.top(), readme=collected.readme)


def _names(paths: list[bytes]) -> str:
    shown = ", ".join(display(path) for path in paths[:NAMED_FILES])
    return shown if len(paths) <= NAMED_FILES else f"{shown} and {len(paths) - NAMED_FILES} more"
