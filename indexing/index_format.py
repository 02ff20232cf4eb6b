"""The on-disk index: names, types, versions, and the reader.

In: `DATA_DIR/indexes/<repository id>/` as `index_writing` left it: one `manifest.json` and the immutable segments it
names. Out: `OpenIndex`, whose arrays are mapped lazily and shared by every reader. `docs/index_format.md` draws it.
Holds coordinates, hashed terms and vectors; never source text. It refuses another format version, a part whose
size differs and (in `verify`) a part whose checksum differs; it never writes.

    manifest.json                      replaced by one rename: everything a search sees changes at once
    segments/<segment id>/<part>.npy   one NumPy array per part, never rewritten once a manifest names it

Rows of a segment are sorted by path bytes, then start byte: a path prefix is one range of files and of chunks.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import mmap
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import DamagedIndex, UnsupportedFormat

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SEGMENTS = "segments"
BIT_RULE = "float16 component >= 0 -> 1"
ROLES = ("primary", "outline", "window")

TERM_LISTS = ("code_stems", "code_terms", "descriptions", "files")  # rows of "files" are files, else chunks
VECTOR_LISTS = ("code", "descriptions", "files")  # owners of "files" are files, else chunks

FILE_DTYPE = np.dtype([("lines", "<u4"), ("language", "<u2"), ("encoding", "u1"), ("flags", "u1")])
CHUNK_DTYPE = np.dtype(
    [
        ("content_hash", "<u8"),  # BLAKE2b-8 of the chunk's own bytes: equal for identical copies
        ("file", "<u4"),
        ("start_byte", "<u4"),
        ("end_byte", "<u4"),
        ("start_line", "<u4"),
        ("end_line", "<u4"),
        ("symbol", "<u4"),  # row of `strings`
        ("first_definition", "<u4"),
        ("definitions", "<u2"),  # how many, from first_definition on, start inside this chunk
        ("role", "u1"),  # position in ROLES
        ("kind", "u1"),  # position in the segment's `kinds`
    ]
)
DEFINITION_DTYPE = np.dtype(
    [
        ("name", "<u4"),  # row of `strings`
        ("qualified_name", "<u4"),  # row of `strings`
        ("chunk", "<u4"),  # the chunk that shows it best
        ("start_byte", "<u4"),
        ("end_byte", "<u4"),
        ("name_byte", "<u4"),
        ("start_line", "<u4"),
        ("end_line", "<u4"),
        ("parent", "<i4"),  # row of `definitions`, -1 for none
        ("kind", "u1"),
    ]
)

_CHUNK_FIELDS = tuple(CHUNK_DTYPE.names or ())
_FILE_FIELDS = tuple(FILE_DTYPE.names or ())


@dataclass(frozen=True, slots=True)
class PartInfo:
    """One file of a segment. `hash` is the SHA-256 of the whole file."""

    file: str
    bytes: int
    hash: str


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """`parts` maps a part's name to its file: a later generation may point a name at a newer file.

    `files` and `chunks` count rows; `dead_*` those of them that belong to files deleted or replaced since.
    """

    id: str
    files: int
    chunks: int
    languages: tuple[str, ...]
    encodings: tuple[str, ...]
    kinds: tuple[str, ...]
    parts: dict[str, PartInfo]
    dead_files: int = 0
    dead_chunks: int = 0
    embedded: int = 0  # live chunks with vectors
    described: int = 0  # live chunks with a description by a model
    cut_by_lines: dict[str, tuple[int, ...]] = field(default_factory=dict)  # why syntax was not used -> file rows

    @property
    def live_files(self) -> int:
        return self.files - self.dead_files

    @property
    def live_chunks(self) -> int:
        return self.chunks - self.dead_chunks


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What made the vectors. Vectors of two different values are never compared or mixed."""

    id: str
    revision: str
    dimensions: int
    query_prompt: str = ""
    document_prompt: str = ""
    bit_rule: str = BIT_RULE
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of the commit's indexable files (lexical) and chunks (the others), 0 to 1."""

    lexical: float = 0.0
    vectors: float = 0.0
    descriptions: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadmeSpan:
    """Where the README's first paragraph is; its text is read from the mirror."""

    path: str
    blob_id: str
    encoding: str
    start_byte: int
    end_byte: int


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """The repository at a glance, for choosing repositories. Its parts are centroids.floats, .bits and .weights."""

    id: str = ""  # folder of the parts, beside the segments; empty without vectors
    languages: dict[str, int] = field(default_factory=dict)  # language -> chunks
    terms: tuple[str, ...] = ()  # most telling first
    readme: ReadmeSpan | None = None
    parts: dict[str, PartInfo] = field(default_factory=dict)
    changed_files: int = 0  # since terms and centroids were made


@dataclass(frozen=True, slots=True)
class Manifest:
    repository_id: int
    index_id: int
    commit: str
    generation: int
    created: str  # ISO 8601, UTC
    model: ModelInfo | None
    segments: tuple[SegmentInfo, ...]
    coverage: Coverage = Coverage()
    profile: ProfileInfo = ProfileInfo()
    chunking: str = ""  # fingerprint of whatever decides how files are cut: another one parses everything again
    all_described: bool = False  # no chunk waits for a description by a model
    version: int = FORMAT_VERSION

    @property
    def files(self) -> int:
        return sum(segment.live_files for segment in self.segments)

    @property
    def chunks(self) -> int:
        return sum(segment.live_chunks for segment in self.segments)

    @property
    def file_names(self) -> set[tuple[str, str]]:
        """(folder below `segments/`, file) of every part."""
        folders = [(segment.id, segment.parts) for segment in self.segments]
        folders.append((self.profile.id, self.profile.parts))
        return {(folder, part.file) for folder, parts in folders for part in parts.values()}

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, *, where: Path) -> Manifest:
        """Raises UnsupportedFormat for another version, DamagedIndex for anything that is not a manifest."""
        try:
            data = json.loads(text)
            version = data["version"]
            if version == FORMAT_VERSION:
                return _manifest(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedIndex(f"{where} is not an index manifest; index the repository again") from error
        raise UnsupportedFormat(
            f"{where} has format {version}, this version reads {FORMAT_VERSION}; index the repository again"
        )

    def folders(self) -> set[str]:
        """Names below `segments/` that this manifest needs."""
        return {segment.id for segment in self.segments} | ({self.profile.id} if self.profile.id else set())


def _manifest(data: dict[str, Any]) -> Manifest:  # Any: JSON
    profile = data["profile"]
    readme = profile["readme"]
    return Manifest(
        repository_id=int(data["repository_id"]),
        index_id=int(data["index_id"]),
        commit=str(data["commit"]),
        generation=int(data["generation"]),
        created=str(data["created"]),
        model=ModelInfo(**data["model"]) if data["model"] else None,
        segments=tuple(_segment_info(segment) for segment in data["segments"]),
        coverage=Coverage(**data["coverage"]),
        profile=ProfileInfo(
            id=_plain_name(profile["id"]) if profile["id"] else "",
            languages=dict(profile["languages"]),
            terms=tuple(profile["terms"]),
            readme=ReadmeSpan(**readme) if readme else None,
            parts=_parts(profile["parts"]),
            changed_files=int(profile.get("changed_files", 0)),
        ),
        chunking=str(data.get("chunking", "")),
        all_described=bool(data.get("all_described", False)),
    )


def _segment_info(data: dict[str, Any]) -> SegmentInfo:  # Any: JSON
    return SegmentInfo(
        id=_plain_name(data["id"]),
        files=int(data["files"]),
        chunks=int(data["chunks"]),
        languages=tuple(data["languages"]),
        encodings=tuple(data["encodings"]),
        kinds=tuple(data["kinds"]),
        parts=_parts(data["parts"]),
        **{name: int(data.get(name, 0)) for name in ("dead_files", "dead_chunks", "embedded", "described")},
        cut_by_lines={str(why): tuple(map(int, rows)) for why, rows in data.get("cut_by_lines", {}).items()},
    )


def _parts(data: dict[str, dict[str, Any]]) -> dict[str, PartInfo]:  # Any: JSON
    return {
        name: PartInfo(file=_plain_name(part["file"]), bytes=int(part["bytes"]), hash=str(part["hash"]))
        for name, part in data.items()
    }


def _plain_name(name: str) -> str:
    """A manifest may come from another machine: a name must not lead out of its folder."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise ValueError(f"{name!r} is not a plain file name")
    return name


@dataclass(frozen=True, slots=True)
class FileRecord:
    path: bytes
    blob_id: str
    language: str
    encoding: str
    flags: int  # see profiling.FileFlag
    lines: int
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """One chunk's coordinates: bytes are 0-based and end-exclusive, lines 1-based and inclusive."""

    path: bytes
    blob_id: str
    encoding: str
    language: str
    flags: int
    role: str
    kind: str
    symbol: str
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int
    description: str  # written by a model; empty without one
    content_hash: int


@dataclass(frozen=True, slots=True)
class DefinitionRecord:
    name: str
    qualified_name: str
    kind: str
    chunk: int
    start_byte: int
    end_byte: int
    name_byte: int
    start_line: int
    end_line: int
    parent: int


class StringTable:
    """Strings laid end to end: row i is blob[starts[i]:starts[i + 1]]."""

    def __init__(self, blob: NDArray[np.uint8], starts: NDArray[np.uint64]) -> None:
        self.blob = blob
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def raw(self, row: int) -> bytes:
        return self.blob[int(self.starts[row]) : int(self.starts[row + 1])].tobytes()

    def raws(self, rows: NDArray[np.int64]) -> list[bytes]:
        starts, ends, blob = self.starts[rows].tolist(), self.starts[rows + 1].tolist(), self.blob
        return [blob[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.raw(row).decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Postings:
    """One term list. `hashes` is sorted; term t occurs in rows[starts[t]:starts[t + 1]], ascending, `freqs` times each.

    freqs stop at 255. `lengths` holds the number of terms of every row of the segment.
    """

    hashes: NDArray[np.uint64]
    starts: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    freqs: NDArray[np.uint8]
    lengths: NDArray[np.uint32]

    @cached_property
    def terms(self) -> int:
        """The number of terms of all rows together."""
        return int(self.lengths.sum(dtype=np.int64))

    def find(self, term_hash: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Returns (rows, freqs) of a term, both empty when it does not occur."""
        position = int(np.searchsorted(self.hashes, np.uint64(term_hash)))
        if position == len(self.hashes) or int(self.hashes[position]) != term_hash:
            return self.rows[:0], self.freqs[:0]
        window = slice(int(self.starts[position]), int(self.starts[position + 1]))
        return self.rows[window], self.freqs[window]


@dataclass(frozen=True, slots=True)
class VectorList:
    """Vectors of one list: owner i (chunk, or file in list "files") has rows starts[i] to starts[i + 1], often one.

    bits: (rows, ceil(d / 64)) uint64; floats: (rows, d) float16 unit rows; hashes: (rows, 16) of the embedded texts.
    """

    bits: NDArray[np.uint64]
    floats: NDArray[np.float16]
    starts: NDArray[np.uint32]
    hashes: NDArray[np.uint8]

    def owners(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.starts.searchsorted(rows.astype(self.starts.dtype), side="right") - 1  # of another type: copies all


class PartFolder:
    """Arrays of one folder below `segments/`, each mapped on first use and kept."""

    def __init__(self, path: Path, parts: dict[str, PartInfo]) -> None:
        self.path = path
        self.parts = parts
        self._arrays: dict[str, NDArray[Any]] = {}  # Any: each part has its own dtype

    def has(self, name: str) -> bool:
        return name in self.parts

    def array(self, name: str) -> NDArray[Any]:
        """Raises DamagedIndex when the part is not named, missing or unreadable."""
        found = self._arrays.get(name)
        if found is None:
            found = self._arrays[name] = self._load(name)
        return found

    def _load(self, name: str) -> NDArray[Any]:
        if name not in self.parts:
            raise DamagedIndex(f"{self.path} has no part {name}; index the repository again")
        path = f"{self.path}/{self.parts[name].file}"
        try:
            return _mapped(path, random=name.endswith(".floats"))
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{path} cannot be read; index the repository again") from error

    def map(self, name: str, path: Path) -> None:
        """Read the part from this copy of it. Raises DamagedIndex, or FileNotFoundError when it is not there."""
        try:
            self._arrays[name] = _mapped(path, random=name.endswith(".floats"))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{path} cannot be read; index the repository again") from error

    def release(self) -> None:
        """See `release_pages`, for all arrays that were used."""
        for array in self._arrays.values():
            release_pages(array)

    def check_sizes(self) -> None:
        for part in self.parts.values():
            path = f"{self.path}/{part.file}"
            try:
                size = os.stat(path).st_size
            except OSError as error:
                raise DamagedIndex(f"{path} is missing; index the repository again") from error
            if size != part.bytes:
                raise DamagedIndex(f"{path} has {size} bytes instead of {part.bytes}; index the repository again")

    def check_hashes(self) -> None:
        for part in self.parts.values():
            if file_hash(self.path / part.file) != part.hash:
                raise DamagedIndex(f"{self.path / part.file} has a wrong checksum; index the repository again")


def _mapped(path: Path | str, *, random: bool) -> NDArray[Any]:
    """A plain array over the mapped file. Rescoring reads single rows: read-ahead made a cold one 50 times slower.

    np.load does the same, but most of its time goes into reading a header as Python code: a first search of ten
    repositories, which maps 300 parts, took 30 ms longer with it.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        plain = _PLAIN_HEADER.match(os.read(file, HEADER_BYTES))
        if plain is None:
            return np.asarray(np.load(path, mmap_mode="r" if _has_rows(path) else None, allow_pickle=False))
        dtype, shape = np.dtype(plain[1].decode()), tuple(int(size) for size in plain[2].split(b",") if size.strip())
        if 0 in shape:  # the operating system maps no empty range
            return np.zeros(shape, dtype)
        mapped = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    if random:
        mapped.madvise(mmap.MADV_RANDOM)
    # Not `frombuffer`: behind its arrays `release_pages` finds a view instead of the map.
    return np.ndarray(shape, dtype, buffer=mapped, offset=HEADER_BYTES)


# The first version of NumPy's format, with the usual length of header, of an array without fields.
HEADER_BYTES = 128
_PLAIN_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '([|<][a-z]\d+)', 'fortran_order': False, 'shape': \(([\d, ]+)\), \} *\n\Z"
)


def release_pages(array: NDArray[Any]) -> None:
    """Give the pages of a mapped array back: whoever reads on maps them again, and memory does not fill up."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


def _has_rows(path: Path | str) -> bool:
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return 0 not in read_header(file)[0]


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Segment(PartFolder):
    """Reader of one segment. Rows are numbered from 0 within the segment."""

    def __init__(self, path: Path, info: SegmentInfo) -> None:
        super().__init__(path, info.parts)
        self.info = info
        self._postings: dict[str, Postings] = {}
        self._vectors: dict[str, VectorList] = {}

    def __len__(self) -> int:
        return self.info.chunks

    @cached_property
    def chunks(self) -> NDArray[Any]:
        """(chunks,) CHUNK_DTYPE"""
        return self.array("chunks")

    @cached_property
    def files(self) -> NDArray[Any]:
        """(files,) FILE_DTYPE"""
        return self.array("files")

    @cached_property
    def file_chunks(self) -> NDArray[np.uint32]:
        """(files + 1,): file i has the chunks file_chunks[i] to file_chunks[i + 1]."""
        return self.array("file_chunks")

    @cached_property
    def definitions(self) -> NDArray[Any]:
        """(definitions,) DEFINITION_DTYPE, in the order of their files."""
        return self.array("definitions")

    @cached_property
    def paths(self) -> StringTable:
        return self._table("paths")

    @cached_property
    def strings(self) -> StringTable:
        return self._table("strings")

    @cached_property
    def descriptions(self) -> StringTable | None:
        """Model-written sentences, one (perhaps empty) per chunk; None before they exist."""
        return self._table("descriptions") if self.has("descriptions.starts") else None

    def _table(self, name: str) -> StringTable:
        return StringTable(self.array(f"{name}.blob"), self.array(f"{name}.starts"))

    def postings(self, name: str) -> Postings | None:
        """One of TERM_LISTS; None while its generation is not published."""
        if name not in self._postings and self.has(f"terms.{name}.hashes"):
            parts = ("hashes", "starts", "rows", "freqs", "lengths")
            self._postings[name] = Postings(*(self.array(f"terms.{name}.{part}") for part in parts))
        return self._postings.get(name)

    def vectors(self, name: str) -> VectorList | None:
        """One of VECTOR_LISTS; None while its generation is not published."""
        if name not in self._vectors and self.has(f"vectors.{name}.bits"):
            parts = ("bits", "floats", "starts", "hashes")
            self._vectors[name] = VectorList(*(self.array(f"vectors.{name}.{part}") for part in parts))
        return self._vectors.get(name)

    @cached_property
    def live_files(self) -> NDArray[np.bool_] | None:
        """(files,) False where the file was deleted or replaced since; None when all are live."""
        return np.asarray(self.array("tombstones") == 0) if self.has("tombstones") else None

    @cached_property
    def live_chunks(self) -> NDArray[np.bool_] | None:
        """(chunks,) False where the file was deleted or replaced since; None when all are live."""
        return None if self.live_files is None else np.repeat(self.live_files, np.diff(self.file_chunks))

    def live_file_rows(self, rows: range | None = None) -> Iterator[int]:
        """Ascending, of all files or of a range of them."""
        live = self.live_files
        return (row for row in (range(self.info.files) if rows is None else rows) if live is None or live[row])

    def file(self, row: int) -> FileRecord:
        record = self.files[row]
        return FileRecord(
            path=self.paths.raw(row),
            blob_id=self.array("blobs")[row].tobytes().hex(),
            language=self.info.languages[record["language"]],
            encoding=self.info.encodings[record["encoding"]],
            flags=int(record["flags"]),
            lines=int(record["lines"]),
            imports=self.imports(row),
        )

    def imports(self, file: int) -> tuple[str, ...]:
        """Module names as the file writes them."""
        starts = self.array("imports.starts")
        return tuple(self.strings[int(row)] for row in self.array("imports.rows")[starts[file] : starts[file + 1]])

    def chunk(self, row: int) -> ChunkRecord:
        record = _record(_CHUNK_FIELDS, self.chunks, row)
        file_row = record["file"]
        file = _record(_FILE_FIELDS, self.files, file_row)
        return ChunkRecord(
            path=self.paths.raw(file_row),
            blob_id=self.array("blobs")[file_row].tobytes().hex(),
            encoding=self.info.encodings[file["encoding"]],
            language=self.info.languages[file["language"]],
            flags=file["flags"],
            role=ROLES[record["role"]],
            kind=self.info.kinds[record["kind"]],
            symbol=self.strings[record["symbol"]],
            start_byte=record["start_byte"],
            end_byte=record["end_byte"],
            start_line=record["start_line"],
            end_line=record["end_line"],
            description=self.descriptions[row] if self.descriptions else "",
            content_hash=record["content_hash"],
        )

    def definition(self, row: int) -> DefinitionRecord:
        record = self.definitions[row]
        return DefinitionRecord(
            name=self.strings[int(record["name"])],
            qualified_name=self.strings[int(record["qualified_name"])],
            kind=self.info.kinds[record["kind"]],
            chunk=int(record["chunk"]),
            start_byte=int(record["start_byte"]),
            end_byte=int(record["end_byte"]),
            name_byte=int(record["name_byte"]),
            start_line=int(record["start_line"]),
            end_line=int(record["end_line"]),
            parent=int(record["parent"]),
        )

    def definitions_named(self, name_hash: int) -> NDArray[np.uint32]:
        """Rows of the definitions whose lower-case name has this `term_hash`, ascending."""
        hashes = self.array("names.hashes")
        first, last = (
            np.searchsorted(hashes, np.uint64(name_hash), "left"),
            np.searchsorted(hashes, np.uint64(name_hash), "right"),
        )
        rows: NDArray[np.uint32] = self.array("names.rows")[first:last]
        return rows

    def find_file(self, path: bytes) -> int | None:
        """The row of a live file."""
        row = bisect.bisect_left(range(self.info.files), path, key=self.paths.raw)
        found = row < self.info.files and self.paths.raw(row) == path
        return row if found and (self.live_files is None or self.live_files[row]) else None

    def files_under(self, prefix: bytes) -> range:
        """Files whose path starts with these bytes: one range, because paths are sorted."""
        rows, cut = range(self.info.files), len(prefix)
        first = bisect.bisect_left(rows, prefix, key=lambda row: self.paths.raw(row)[:cut])
        last = bisect.bisect_right(rows, prefix, lo=first, key=lambda row: self.paths.raw(row)[:cut])
        return range(first, last)

    def files_in(self, folder: bytes) -> range:
        """Files of that folder, or the one that has this path; not those of its neighbour `src/flask_ext`."""
        rows = range(self.info.files)
        first = bisect.bisect_left(rows, folder, key=self.paths.raw)
        last = bisect.bisect_right(rows, folder, lo=first, key=self.paths.raw)
        return self.files_under(folder + b"/") or range(first, last)

    def chunks_written_in(self, languages: Collection[str]) -> NDArray[np.bool_]:
        """(chunks,)"""
        known = [number for number, name in enumerate(self.info.languages) if name in languages]
        files = np.isin(self.files["language"], known)
        edges = self.file_chunks.astype(np.int64)
        return files.repeat(edges[1:] - edges[:-1])

    def chunks_in(self, folder: bytes) -> range:
        files = self.files_in(folder)
        return range(int(self.file_chunks[files.start]), int(self.file_chunks[files.stop]))


def _record(fields: tuple[str, ...], rows: NDArray[Any], row: int) -> dict[str, int]:  # Any: a record
    """Its fields as numbers of Python, read at once: one by one they take ten times as long."""
    return dict(zip(fields, rows[row].item(), strict=True))


@dataclass(frozen=True, slots=True)
class Profile:
    """floats: (k, d) float16 unit rows; bits: (k, ceil(d / 64)) uint64; weights: (k,) float32, summing to 1."""

    floats: NDArray[np.float16]
    bits: NDArray[np.uint64]
    weights: NDArray[np.float32]


class OpenIndex:
    """One published generation. It stays readable after a newer one is published, as long as it is held."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.segments = tuple(Segment(path / SEGMENTS / info.id, info) for info in manifest.segments)

    @property
    def chunk_count(self) -> int:
        return self.manifest.chunks

    @cached_property
    def profile(self) -> Profile | None:
        """None while there are no vectors."""
        folder = self._profile_folder
        if folder is None:
            return None
        return Profile(*(folder.array(f"centroids.{part}") for part in ("floats", "bits", "weights")))

    def folders(self) -> Iterator[PartFolder]:
        yield from self.segments
        if (folder := self._profile_folder) is not None:
            yield folder

    @cached_property
    def _profile_folder(self) -> PartFolder | None:
        info = self.manifest.profile
        return PartFolder(self.path / SEGMENTS / info.id, info.parts) if info.id else None

    def find_file(self, path: bytes) -> tuple[Segment, int] | None:
        for segment in self.segments:
            if (row := segment.find_file(path)) is not None:
                return segment, row
        return None


def read_manifest(directory: Path) -> Manifest | None:
    """None when nothing was published. Raises DamagedIndex, UnsupportedFormat."""
    path = directory / MANIFEST
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedIndex(f"{path} cannot be read; index the repository again") from error
    return Manifest.from_json(text, where=path)


def open_index(directory: Path) -> OpenIndex:
    """Checks the size of every part. Raises DamagedIndex (also when nothing is there), UnsupportedFormat."""
    manifest = read_manifest(directory)
    if manifest is None:
        raise DamagedIndex(f"there is no index in {directory}; index the repository first")
    index = OpenIndex(directory, manifest)
    for folder in index.folders():
        folder.check_sizes()
    return index


def verify(directory: Path) -> OpenIndex:
    """Reads every byte and compares checksums. Raises DamagedIndex, UnsupportedFormat."""
    index = open_index(directory)
    for folder in index.folders():
        folder.check_hashes()
    return index
