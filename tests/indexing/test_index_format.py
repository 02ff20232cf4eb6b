from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.chunking import Chunk, ChunkedFile
from indexing.errors import DamagedIndex, UnsupportedFormat
from indexing.index_format import (
    FILE_DTYPE,
    FileRecord,
    Manifest,
    ModelInfo,
    PartFolder,
    Postings,
    Segment,
    SegmentInfo,
    open_index,
    read_manifest,
    release_pages,
    verify,
)
from indexing.index_writing import (
    PartWriter,
    VectorListWriter,
    publish,
    remove_unnamed,
    with_parts,
)
from indexing.parsing import Definition, ParsedFile
from indexing.postings import replace_postings
from indexing.segment_writing import SegmentWriter
from indexing.tokenizing import term_hash

BLOB = "0123456789abcdef0123456789abcdef01234567"


def _file(path: str) -> FileRecord:
    return FileRecord(
        path=path.encode(), blob_id=BLOB, language="python", encoding="utf-8", flags=1, lines=9, imports=("os", "re")
    )


def _chunked(symbol: str) -> ChunkedFile:
    definition = Definition(
        name=symbol,
        qualified_name=symbol,
        kind="function",
        start_byte=0,
        end_byte=20,
        name_byte=4,
        start_line=1,
        end_line=2,
        parent=-1,
        head_byte=0,
        body_byte=9,
    )
    chunks = (
        Chunk("primary", "function", symbol, 0, 20, 1, 2, (0,)),
        Chunk("primary", "block", "", 21, 40, 3, 4),
    )
    return ChunkedFile(chunks=chunks, parsed=ParsedFile(definitions=(definition,)))


def _segment(directory: Path, paths: list[str], segment_id: str = "s1") -> SegmentInfo:
    writer = SegmentWriter(directory, segment_id=segment_id)
    for path in paths:
        writer.add_file(_file(path), _chunked(path.rsplit("/", 1)[-1]), [7, 8])
        for row in ("alpha beta alpha", "beta"):
            writer.terms.code.add(row.split())
            writer.terms.descriptions.add(row.split())
        writer.terms.files.add(["alpha"])
    return writer.finish()


def _publish(directory: Path, *segments: SegmentInfo, generation: int = 1) -> None:
    publish(
        directory,
        Manifest(
            repository_id=3,
            index_id=4,
            commit="c" * 40,
            generation=generation,
            created="2025-01-01T00:00:00+00:00",
            model=ModelInfo(id="m", revision="r", dimensions=70),
            segments=segments,
        ),
    )


def test_it_reads_back_the_coordinates_it_wrote(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py", "pkg/b.py"]))
    segment = open_index(tmp_path).segments[0]
    chunk = segment.chunk(2)
    assert (chunk.path, chunk.blob_id, chunk.symbol, chunk.role) == (b"pkg/b.py", BLOB, "b.py", "primary")
    assert (chunk.kind, chunk.start_byte, chunk.end_byte, chunk.start_line, chunk.end_line) == ("function", 0, 20, 1, 2)
    assert (chunk.language, chunk.encoding, chunk.flags, chunk.content_hash) == ("python", "utf-8", 1, 7)
    assert segment.file(1) == _file("pkg/b.py")


def test_it_finds_definitions_by_name(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py", "pkg/B.py"]))
    segment = open_index(tmp_path).segments[0]
    rows = segment.definitions_named(term_hash("b.py"))
    assert [segment.definition(int(row)).chunk for row in rows] == [2]
    assert segment.definitions_named(term_hash("c.py")).size == 0


def test_it_finds_terms_with_their_frequencies(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py", "b.py"]))
    postings = open_index(tmp_path).segments[0].postings("code_stems")
    assert postings is not None
    rows, freqs = postings.find(term_hash("alpha"))
    assert (rows.tolist(), freqs.tolist()) == ([0, 2], [2, 2])
    assert postings.find(term_hash("beta"))[0].tolist() == [0, 1, 2, 3]
    assert postings.find(term_hash("gamma"))[0].size == 0
    assert postings.lengths.tolist() == [3, 1, 3, 1]


def test_it_turns_a_path_prefix_into_one_range(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py", "src-old/x.py", "src/a.py", "src/b.py", "src2/c.py"]))
    segment = open_index(tmp_path).segments[0]
    assert segment.files_under(b"src/") == range(2, 4)
    assert segment.files_in(b"src") == range(2, 4)
    assert segment.chunks_in(b"src") == range(4, 8)
    assert segment.files_in(b"a.py") == range(1)
    assert not segment.files_in(b"sr")
    assert segment.files_under(b"none/").start == segment.files_under(b"none/").stop
    assert segment.files_under(b"") == range(5)
    assert (segment.find_file(b"src/b.py"), segment.find_file(b"src/c.py")) == (3, None)


def test_it_refuses_paths_out_of_order(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not come after"):
        _segment(tmp_path, ["b.py", "a.py"])


def test_it_reads_vectors_of_a_later_generation(tmp_path: Path) -> None:
    segment = _segment(tmp_path, ["a.py"])
    vectors = np.eye(3, 70, dtype=np.float16) - np.float16(0.5)
    parts = PartWriter(tmp_path, folder="s1", suffix=".2")
    writer = VectorListWriter(parts, "code", dimensions=70)
    writer.append([1], bytes(range(16)), [vectors[:1]])
    writer.append([2], bytes(range(16, 48)), [vectors[1:2], vectors[2:]])
    parts.sync()
    _publish(tmp_path, with_parts(segment, parts.parts), generation=2)
    code = verify(tmp_path).segments[0].vectors("code")
    assert code is not None
    assert np.array_equal(code.floats, vectors)
    assert code.bits.tolist() == [[1, 0], [2, 0], [4, 0]]
    assert code.owners(np.array([0, 1, 2])).tolist() == [0, 1, 1]
    assert code.hashes[1].tobytes() == bytes(range(16, 32))


def test_it_has_no_vectors_before_their_generation(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py"]))
    index = open_index(tmp_path)
    assert index.segments[0].vectors("code") is None
    assert index.segments[0].descriptions is None
    assert index.profile is None


def test_it_reads_descriptions_that_replace_earlier_ones(tmp_path: Path) -> None:
    first, second = PartWriter(tmp_path, folder="s1", suffix=".2"), PartWriter(tmp_path, folder="s1", suffix=".3")
    segment = _segment(tmp_path, ["a.py"])
    first.add_strings("descriptions", ["old", ""])
    second.add_strings("descriptions", ["new 日本", "two"])
    _publish(tmp_path, with_parts(with_parts(segment, first.parts), second.parts))
    assert open_index(tmp_path).segments[0].chunk(0).description == "new 日本"


def test_it_masks_the_chunks_of_deleted_files(tmp_path: Path) -> None:
    segment = _segment(tmp_path, ["a.py", "b.py"])
    parts = PartWriter(tmp_path, folder="s1", suffix=".2")
    parts.add("tombstones", np.array([1, 0], dtype=np.uint8))
    _publish(tmp_path, with_parts(segment, parts.parts))
    live = open_index(tmp_path).segments[0].live_chunks
    assert live is not None
    assert live.tolist() == [False, False, True, True]


def test_it_opens_a_segment_without_rows(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, []))
    segment = verify(tmp_path).segments[0]
    assert (len(segment), len(segment.chunks), len(segment.paths)) == (0, 0, 0)
    assert segment.files_under(b"a") == range(0)


@pytest.mark.parametrize(("seconds", "left"), [(0, ["s2", "s3"]), (60, ["s1", "s2", "s3"])])
def test_it_keeps_what_searches_may_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, left: list[str]
) -> None:
    monkeypatch.setattr("indexing.index_writing.RETIRED_SECONDS", seconds)
    _publish(tmp_path, _segment(tmp_path, ["a.py"], "s1"))
    held = open_index(tmp_path)
    for generation, name in ((2, "s2"), (3, "s3")):
        assert held.segments[0].chunk(0).path == b"a.py"
        _publish(tmp_path, _segment(tmp_path, ["b.py"], name), generation=generation)
        remove_unnamed(tmp_path)
    assert held.segments[0].chunk(0).path == b"a.py"
    assert sorted(path.name for path in (tmp_path / "segments").iterdir()) == left


def test_it_removes_files_that_an_attempt_left_in_a_named_segment(tmp_path: Path) -> None:
    info = _segment(tmp_path, ["a.py"], "s1")
    _publish(tmp_path, info)
    left = tmp_path / "segments/s1/tombstones.7.npy"
    left.write_bytes(b"x")
    remove_unnamed(tmp_path)
    assert not left.exists()
    open_index(tmp_path)


def test_it_never_overwrites_a_part(tmp_path: Path) -> None:
    _segment(tmp_path, ["a.py"])
    with pytest.raises(FileExistsError):
        PartWriter(tmp_path, folder="s1").add("chunks", np.zeros(1))


def test_it_notices_a_part_of_another_size(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py"]))
    with (tmp_path / "segments/s1/chunks.npy").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DamagedIndex, match=r"chunks.npy has \d+ bytes instead of"):
        open_index(tmp_path)


def test_it_notices_a_missing_part(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py"]))
    (tmp_path / "segments/s1/chunks.npy").unlink()
    with pytest.raises(DamagedIndex, match="is missing"):
        open_index(tmp_path)


def test_it_notices_a_changed_byte(tmp_path: Path) -> None:
    _publish(tmp_path, _segment(tmp_path, ["a.py"]))
    part = tmp_path / "segments/s1/terms.files.rows.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"\x07")
    open_index(tmp_path)
    with pytest.raises(DamagedIndex, match="wrong checksum"):
        verify(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "\udcff"])
def test_it_refuses_what_is_no_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DamagedIndex):
        open_index(tmp_path)


def test_it_refuses_another_version(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"version": 99}')
    with pytest.raises(UnsupportedFormat, match="format 99, this version reads 1"):
        open_index(tmp_path)


def test_it_refuses_names_that_lead_out_of_the_folder(tmp_path: Path) -> None:
    _publish(tmp_path, replace(_segment(tmp_path, ["a.py"]), id="../../elsewhere"))
    with pytest.raises(DamagedIndex):
        open_index(tmp_path)


def test_it_says_when_nothing_was_published(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    with pytest.raises(DamagedIndex, match="there is no index"):
        open_index(tmp_path)


_DOCUMENTS = st.lists(st.dictionaries(st.sampled_from("bcdefg"), st.integers(1, 300), max_size=4), max_size=8)


def _postings(documents: list[dict[str, int]]) -> Postings:
    with TemporaryDirectory() as folder:
        writer = SegmentWriter(Path(folder), segment_id="s1")
        for document in documents:
            writer.terms.files.add(Counter(document).elements())
        postings = Segment(Path(folder, "segments/s1"), writer.finish()).postings("files")
        assert postings is not None
        return postings


@settings(max_examples=6, deadline=None)
@given(_DOCUMENTS)
def test_it_finds_each_term_in_the_rows_that_have_it(documents: list[dict[str, int]]) -> None:
    postings = _postings(documents)
    for term in "bcdefg":
        rows, freqs = postings.find(term_hash(term))
        expected = {row: min(document[term], 255) for row, document in enumerate(documents) if term in document}
        assert dict(zip(rows.tolist(), freqs.tolist(), strict=True)) == expected
        assert rows.tolist() == sorted(expected)
    assert postings.lengths.tolist() == [sum(document.values()) for document in documents]


@settings(max_examples=6, deadline=None)
@given(_DOCUMENTS, st.dictionaries(st.integers(0, 7), st.dictionaries(st.sampled_from("bcdxyz"), st.integers(1, 3))))
def test_it_replaces_rows_as_if_they_had_been_so_from_the_start(
    documents: list[dict[str, int]], replaced: dict[int, dict[str, int]]
) -> None:
    replaced = {row: terms for row, terms in replaced.items() if row < len(documents)}
    with TemporaryDirectory() as folder:
        parts = PartWriter(Path(folder), folder="s2")
        words = {row: list(Counter(terms).elements()) for row, terms in replaced.items()}
        replace_postings(parts, "files", _postings(documents), words)
        parts.sync()
        found = Segment(parts.path, SegmentInfo("s2", 0, 0, (), (), (), parts.parts)).postings("files")
        expected = _postings([replaced.get(row, document) for row, document in enumerate(documents)])
        assert found is not None
        for name in ("hashes", "starts", "rows", "freqs", "lengths"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("name", ["vectors.code.bits", "files"])  # a plain array, and one of records
def test_it_gives_the_pages_of_a_part_back(tmp_path: Path, name: str) -> None:
    parts = PartWriter(tmp_path, folder="one")
    parts.add(name, np.ones(2**20, dtype=np.uint64 if name != "files" else FILE_DTYPE))
    array = PartFolder(parts.path, parts.parts).array(name)
    assert array[:: 2**9].sum() == 2**11 if name != "files" else array["lines"].sum() == 2**20
    assert _resident(parts.path) > 1_000
    release_pages(array)
    assert _resident(parts.path) == 0


def _resident(folder: Path) -> int:
    """Kilobytes of files in this folder that this process has mapped and in memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    mine = [at for at, line in enumerate(lines) if f" {folder}/" in line]
    return sum(int(line.split()[1]) for at in mine for line in lines[at : at + 5] if line.startswith("Rss:"))
