"""A published index <-> one tar file, so that a CI job can make it and a server can take it over.

Out: `export.json`, the manifest, the list of skipped files and the parts the manifest names. In: nothing is believed.
Only those members are read, each with the size and checksum that the manifest states; the commit has to be in the
server's own mirror of the repository, and every file of the index has to be that commit's file, blob for blob. The
code itself is not in the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from indexing import git, registering
from indexing.access import Principal
from indexing.building import open_build, run_under_lease
from indexing.errors import DamagedIndex, IndexFormatError, IndexingError, MissingObject, UnsupportedFormat
from indexing.index_checking import check_structure
from indexing.index_format import MANIFEST, SEGMENTS, Manifest, OpenIndex, PartInfo, verify
from indexing.index_writing import new_folder_id, publish, remove_unnamed, sync_folder, usable_manifest
from indexing.models import Index, Mirror, Repository, SkippedFile
from indexing.skipping import remove_skipped_before
from indexing.sources import parse_source

FORMAT = 1
ABOUT, SKIPPED = "export.json", "skipped.json"
MAX_HEAD_BYTES = 64 * 1024 * 1024
COPY_BYTES = 1024 * 1024


def export_index(repository: Repository, file: Path) -> Manifest:
    """Writes the published index beside its place and renames it. Raises DamagedIndex, UnsupportedFormat."""
    index = verify(repository.index_path)
    manifest, row = index.manifest, repository.current_index
    skipped = list(row.skip_list.values_list("path", "reason", "detail")) if row else []
    heads = {MANIFEST: manifest.to_json().encode(), SKIPPED: json.dumps(skipped).encode()}
    about = {
        "format": FORMAT,
        "name": repository.name,
        "url": repository.mirror.url if repository.mirror.kind == Mirror.Kind.REMOTE else "",
        "ref": repository.ref,
        "commit": manifest.commit,
        "hashes": {name: hashlib.sha256(content).hexdigest() for name, content in heads.items()},
    }
    temporary = file.with_name(f"{file.name}.tmp")
    try:
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            for name, content in {ABOUT: json.dumps(about, indent=1).encode(), **heads}.items():
                tar.addfile(_member(name, len(content)), io.BytesIO(content))
            for name, part in sorted(_parts(manifest).items()):
                with (repository.index_path / name).open("rb") as opened:
                    tar.addfile(_member(name, part.bytes), opened)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return manifest


def _member(name: str, size: int) -> tarfile.TarInfo:
    """No times and no owners: the same index gives the same file."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _parts(manifest: Manifest) -> dict[str, PartInfo]:
    """Path below the folder of the index -> what the manifest says of the file."""
    folders = [(info.id, info.parts) for info in manifest.segments] + [(manifest.profile.id, manifest.profile.parts)]
    return {f"{SEGMENTS}/{folder}/{part.file}": part for folder, parts in folders for part in parts.values()}


@dataclass(frozen=True, slots=True)
class _Received:
    """An unpacked file: `folder` holds the checked parts."""

    folder: Path
    about: dict[str, Any]  # Any: JSON
    manifest: Manifest
    skipped: list[tuple[str, str, str]]


def import_index(file: Path, *, name: str = "") -> Index | None:
    """Publish an exported index for the repository called `name`, or for the one with the URL it was made from.

    None when the server has the index of a later commit already. Raises IndexingError with what is wrong.
    """
    with _received(file) as received:
        repository = _repository_for(received.about, name)
        index, created = open_build(repository)
        if not created:
            raise IndexingError(f"{repository.name} is being indexed. Wait for it, or stop it first.")
        outcome: list[bool] = []

        def work(index: Index, check: Callable[[], None]) -> None:
            outcome.append(_take_over(index, received, check))

        if not run_under_lease(index.pk, work):
            raise IndexingError(f"{repository.name} is being indexed by another process.")
    index.refresh_from_db()
    if index.status != Index.Status.READY:
        raise IndexingError(index.error)
    return index if outcome == [True] else None


@contextmanager
def _received(file: Path) -> Iterator[_Received]:
    parent = Path(settings.DATA_DIR) / "indexes"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="import-", dir=parent))
    try:
        try:
            with tarfile.open(file, "r:") as tar:
                received = _unpack(tar, folder)
        except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedIndex(f"{file} is not an exported index, or is damaged.") from error
        yield received
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(tar: tarfile.TarFile, folder: Path) -> _Received:
    members = iter(tar)
    about = json.loads(_head(tar, next(members, None), ABOUT))
    if about["format"] != FORMAT:
        raise UnsupportedFormat(f"the export has format {about['format']}, this version reads {FORMAT}")
    heads = {name: _head(tar, next(members, None), name) for name in (MANIFEST, SKIPPED)}
    for name, content in heads.items():
        if hashlib.sha256(content).hexdigest() != about["hashes"][name]:
            raise DamagedIndex(f"{name} of the export has a wrong checksum")
    manifest = Manifest.from_json(heads[MANIFEST].decode(), where=Path(MANIFEST))
    if manifest.commit != about["commit"]:
        raise DamagedIndex("the export names two commits")
    expected = _parts(manifest)
    for member in members:
        part = expected.pop(member.name, None)
        if part is None or not member.isreg() or member.size != part.bytes:
            raise DamagedIndex(f"the export holds {member.name!r}, which its manifest does not describe")
        _copy(_content(tar, member), folder / member.name, part)
    if expected:
        raise DamagedIndex(f"{len(expected)} parts are missing in the export")
    skipped = [
        (str(path)[:1000], str(reason)[:20], str(detail)[:300]) for path, reason, detail in json.loads(heads[SKIPPED])
    ]
    return _Received(folder, about, manifest, skipped)


def _head(tar: tarfile.TarFile, member: tarfile.TarInfo | None, name: str) -> bytes:
    if member is None or member.name != name or not member.isreg() or member.size > MAX_HEAD_BYTES:
        raise DamagedIndex(f"the export has no {name} at its place")
    return _content(tar, member).read()


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member)
    assert content is not None  # it is a regular file
    return content


def _copy(content: IO[bytes], target: Path, part: PartInfo) -> None:
    """`target` is made of names that the manifest's reader has checked: they lead nowhere else."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while piece := content.read(COPY_BYTES):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != part.hash:
        raise DamagedIndex(f"{target.name} of the export has a wrong checksum")


def _repository_for(about: dict[str, Any], name: str) -> Repository:  # Any: JSON
    """Raises IndexingError, InvalidSource."""
    url, ref = str(about["url"]), str(about["ref"])
    known = Repository.objects.select_related("mirror")
    found = known.filter(name=name) if name else known.filter(mirror__url=url, ref=ref)
    if (repository := found.order_by("pk").first()) is not None:
        return repository
    if not url:
        wanted = f"No repository is called {name} here." if name else "Say with --name which one it is of."
        raise IndexingError(f"The export was made from a local checkout. {wanted}")
    source = parse_source(url, from_staff=False)
    return registering.register(source, owner=None, principal=Principal.operator(), name=name, ref=git.check_ref(ref))[
        0
    ]


def _take_over(index: Index, received: _Received, check: Callable[[], None]) -> bool:
    """False when the published index is of a later commit. Raises IndexingError."""
    repository, manifest = index.repository, received.manifest
    index.commit = manifest.commit
    git.ensure_mirror(repository.mirror, on_progress=lambda _line: check())
    try:
        git.pin(repository.mirror.path, manifest.commit)
    except MissingObject as error:
        raise IndexingError(
            f"Commit {manifest.commit[:10]} is not in {repository.mirror.url}. Push it first; an index is only taken "
            "over for code that the server can read itself."
        ) from error
    if _is_older(repository, manifest.commit):
        index.save(update_fields=["commit"])
        return False
    check_structure(OpenIndex(received.folder, manifest))
    _check_files(OpenIndex(received.folder, manifest), repository)
    check()
    _publish(index, received)
    return True


def _is_older(repository: Repository, commit: str) -> bool:
    current, mirror_path = repository.current_index, repository.mirror.path
    if current is None or usable_manifest(repository.index_path) is None:
        return False
    try:
        behind = git.commits_between(mirror_path, commit, current.commit)
        ahead = git.commits_between(mirror_path, current.commit, commit)
    except MissingObject:
        return False
    return behind > 0 and ahead == 0


def _check_files(index: OpenIndex, repository: Repository) -> None:
    entries = git.list_tree(repository.mirror.path, index.manifest.commit)
    tree = {(entry.path, entry.blob_id) for entry in entries if entry.mode & 0o170000 == 0o100000}
    for segment in index.segments:
        for row in segment.live_file_rows():
            if (segment.paths.raw(row), segment.array("blobs")[row].tobytes().hex()) not in tree:
                raise IndexFormatError("The export has files that are not in the commit it names.")


def _publish(index: Index, received: _Received) -> None:
    """Folders get names of this server; then as at the end of a build: the manifest, then the rows."""
    repository, directory = index.repository, index.repository.index_path
    before, manifest = usable_manifest(directory), received.manifest
    names = {folder: new_folder_id(index.pk) for folder in sorted(manifest.folders())}
    (directory / SEGMENTS).mkdir(parents=True, exist_ok=True)
    for folder, name in names.items():
        (received.folder / SEGMENTS / folder).rename(directory / SEGMENTS / name)
    sync_folder(directory / SEGMENTS)
    manifest = replace(
        manifest,
        repository_id=repository.pk,
        index_id=index.pk,
        generation=before.generation + 1 if before else 1,
        segments=tuple(replace(segment, id=names[segment.id]) for segment in manifest.segments),
        profile=replace(manifest.profile, id=names.get(manifest.profile.id, "")),
    )
    publish(directory, manifest)
    _fill_row(index, manifest, received.skipped)
    with transaction.atomic():
        index.save()
        SkippedFile.objects.bulk_create(
            [
                SkippedFile(index=index, path=path, reason=reason, detail=detail)
                for path, reason, detail in received.skipped
            ],
            batch_size=1000,
        )
        remove_skipped_before(index)
        Repository.objects.filter(pk=repository.pk).update(
            current_index=index, commits_behind=0, checked_at=timezone.now()
        )
    remove_unnamed(directory)


def _fill_row(index: Index, manifest: Manifest, skipped: list[tuple[str, str, str]]) -> None:
    index.skipped = dict(Counter(reason for _, reason, _ in skipped))
    index.files_done = index.files_known = manifest.files + len(skipped)
    index.chunks_done = index.chunks_known = manifest.chunks
    index.size_bytes = sum(part.bytes for part in _parts(manifest).values())
    index.step = Index.Step.PUBLISH
    index.lexical_at = timezone.now()
    index.vectors_at = timezone.now() if manifest.coverage.vectors else None
