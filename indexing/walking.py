"""Which blobs of a commit are indexed, decoded and routed; and the recorded reason for every one that is not.

What name, mode and size tell is decided before a blob is read. The rest is read in Git's order through one process,
one file in memory at a time. Tests and documents are not left out: ranking deals with them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from django.db.models import TextChoices

from indexing.decoding import decode, decode_source
from indexing.git import BlobReader, TreeEntry, list_tree, named_blobs
from indexing.languages import is_openapi, language_of, route_of
from indexing.offsets import OffsetMap
from indexing.path_rules import ATTRIBUTES_NAME, IGNORE_NAME, MODULES_NAME, PathRules, chosen_rules

__all__ = ["RULE_FILES", "SkipReason", "SkippedEntry", "SourceFile", "decode", "source_of", "walk"]

logger = logging.getLogger(__name__)


class SkipReason(TextChoices):
    """Why a tracked file is not indexed."""

    BINARY = "binary", "binary file"
    GENERATED = "generated", "generated file"
    VENDORED = "vendored", "copy of someone else's code"
    MINIFIED = "minified", "minified file"
    TOO_LARGE = "too_large", "too large"
    LFS_POINTER = "lfs_pointer", "Git LFS pointer"
    SYMLINK = "symlink", "symbolic link"
    SUBMODULE = "submodule", "submodule"
    SECRET = "secret", "may hold secrets"  # noqa: S105 (a label)
    ENCODING = "encoding", "unknown text encoding"
    EMPTY = "empty", "empty file"
    IGNORED = "ignored", "left out by a rule"
    FAILED = "failed", "could not be read"
    PARSER = "parser", "its parser crashed or did not end"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to index. `text` is the UTF-8 that the parsers see; it is `raw` itself for plain UTF-8."""

    path: bytes
    blob_id: str
    language: str
    route: str  # code, markdown, openapi, notebook, config or text
    encoding: str
    raw: bytes
    text: bytes
    offsets: OffsetMap


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    path: bytes
    reason: SkipReason
    detail: str


RULE_FILES = frozenset({IGNORE_NAME, ATTRIBUTES_NAME})  # a change of one may concern any other file
_ENTRIES_AT_ONCE = 256
_HEAD_BYTES = 4096
_MAX_RULE_FILE_BYTES = 200_000
_SYMLINK_MODE, _SUBMODULE_MODE = 0o120000, 0o160000

_VENDORED_FOLDERS = frozenset(
    b"node_modules bower_components jspm_packages vendor vendors third_party third-party thirdparty 3rdparty "
    b"3rd-party .yarn Pods Carthage site-packages .venv Godeps .bundle".split()
)
# `vendor` is also an everyday word: below these it is a package of the project (com.shop.vendor).
_PACKAGE_ROOTS = frozenset({b"java", b"kotlin", b"scala", b"groovy"})
_VENDORED_NAMES = frozenset({b"gradlew", b"gradlew.bat", b"mvnw", b"mvnw.cmd"})
_LOCK_FILES = frozenset(
    b"package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock Cargo.lock "
    b"poetry.lock uv.lock pdm.lock Pipfile.lock pixi.lock conda-lock.yml composer.lock Gemfile.lock go.sum go.work.sum "
    b"mix.lock rebar.lock pubspec.lock Podfile.lock Cartfile.resolved Package.resolved packages.lock.json paket.lock "
    b"project.assets.json gradle.lockfile flake.lock stack.yaml.lock shard.lock MODULE.bazel.lock "
    b".terraform.lock.hcl".split()
)
_GENERATED_NAME = re.compile(
    rb".*(_pb2(_grpc)?\.pyi?|\.pb(\.gw|\.validate)?\.(go|cc|h|swift|dart)|_grpc\.pb\.go|_pb\.(js|ts|rb)"
    rb"|\.g\.(dart|cs|i\.cs)|\.freezed\.dart|\.designer\.(cs|vb)|\.generated\.\w+|_generated\.\w+|\.gen\.(go|ts|js)"
    rb"|\.[jt]sx?\.snap)|zz_generated\..+",
    re.IGNORECASE,
)
_GENERATED_FOLDERS = frozenset({b"__generated__", b"__snapshots__"})
_MINIFIED_NAME = re.compile(rb".*([.-]min\.(js|mjs|cjs|css|html)|\.bundle\.js|\.(js|css|mjs|cjs)\.map)", re.IGNORECASE)
_MINIFIABLE = frozenset({"javascript", "typescript", "tsx", "css", "html", "json", "xml"})
_LONG_LINE_BYTES = 5000
_MINIFIED_AVERAGE_BYTES = 400
_MINIFIED_FROM_BYTES = 2000

# Extensions that text files have as well (.pt, .mo, .db) are missing on purpose: the content decides.
_BINARY_EXTENSIONS = frozenset(
    b"png jpg jpeg gif bmp ico icns webp avif tif tiff psd ai eps svg svgz xcf heic woff woff2 ttf otf eot mp3 wav ogg "
    b"flac m4a aac mp4 m4v mov avi mkv webm wmv zip gz tgz bz2 tbz xz txz zst lz4 7z rar jar war ear aar whl egg nupkg "
    b"apk ipa deb rpm dmg iso msi exe dll so dylib lib a o obj ko pyc pyo pyd class dex wasm bin pdf doc docx xls xlsx "
    b"ppt pptx odt ods odp sqlite sqlite3 mdb pickle pkl npy npz pth onnx safetensors gguf h5 hdf5 parquet feather "
    b"arrow orc pack idx swf fla blend fbx glb stl dds ktx beam".split()
)

_SECRET_NAME = re.compile(
    rb"\.env|\.env\..+|[\w.-]+\.env|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.+\.(pem|p12|pfx|key|p8|jks|keystore|kdbx|ppk)"
    rb"|\.netrc|_netrc|\.git-credentials|\.htpasswd|\.dockercfg|\.pgpass|\.my\.cnf|\.vault-token|\.s3cfg"
    rb"|credentials(\.json|\.csv)?|client_secrets?\.json|service[-_]account([-_].+)?\.json|master\.key|.+\.tfstate",
    re.IGNORECASE,
)
_EXAMPLE_NAME = re.compile(rb".*\b(example|sample|template|tmpl|dist|defaults?|schema)\b.*", re.IGNORECASE)
_LOGIN_FILES = frozenset(
    {b".npmrc", b".pypirc", b".yarnrc", b".yarnrc.yml", b"pip.conf", b"settings.xml", b"nuget.config"}
)
_LOGIN = re.compile(
    rb"(_auth(Token)?|_password|npmAuthToken|password|ClearTextPassword)\b\W{1,6}(?!\$)[\w+/=.-]{6,}", re.I
)
_SECRET_HEAD = re.compile(
    rb"\A\s*-----BEGIN [A-Z0-9 ]*PRIVATE KEY|\APuTTY-User-Key-File|\"private_key\"\s*:\s*\"-----BEGIN", re.ASCII
)

_LFS_HEAD = b"version https://git-lfs.github.com/spec/"
_COMMENT = re.compile(rb"\s*(?://+!?|#+!?|/\*+!?|\*+|--+|;+|<!--|%+|\(\*|\"\"\"|'''|(?:@?rem\b))\s?(.*)", re.IGNORECASE)
_NO_EDIT = rb"\bdo(?: not|n't) (?:edit|modify|change)\b"
_GENERATED_COMMENT = re.compile(
    rb"@generated\b"
    rb"|(?:^|\n)\W*(?:auto-?generated\b|generated automatically\b"
    rb"|(?:automatically|auto|machine)[ -]generated(?:\W*(?:\n|$)| (?:file|code|by|from|on|with|using)\b))"
    rb"|\bth(?:is|e) (?:file|code|class|module|header|script) (?:is|was|has been) "
    rb"(?:auto|automatically|machine|programmatically)?[ -]?generated\b"
    rb"|(?:^|\n)\W*code generated\b[^\n]{0,200}%(no_edit)s"
    rb"|\bgenerated (?:by|from|with|using)\b[^\n]{0,120}\n?[^\n]{0,120}%(no_edit)s"
    rb"|%(no_edit)s[^\n]{0,120}\n?[^\n]{0,60}\bgenerated (?:by|from|with|using|file|code)\b" % {b"no_edit": _NO_EDIT},
    re.IGNORECASE,
)
_HEADER_LINES = 30


def walk(
    mirror_path: Path,
    commit: str,
    *,
    max_file_bytes: int,
    only: Iterable[TreeEntry] | None = None,
    chosen: str = "",
) -> Iterator[SourceFile | SkippedEntry]:
    """Every tracked file of the commit, in Git's path order, either to index or with the reason why not.

    `only` narrows it to some of the commit's files, in the order given. `chosen` are the patterns of the repository's
    settings, which win over those in the repository.

    The repository's `.gitignore` plays no part: it speaks of files that are not tracked, and a file that somebody
    committed in spite of it is part of the code. `.assistantignore` (same patterns) leaves tracked files out, and its
    `!` patterns bring back what would be left out as vendored, generated or minified.
    Raises MissingObject when the mirror lacks the commit or one of its blobs.
    """
    rules = _read_rules(mirror_path, commit, chosen)
    entries = list_tree(mirror_path, commit) if only is None else iter(only)
    with BlobReader(mirror_path) as blobs:
        while batch := list(islice(entries, _ENTRIES_AT_ONCE)):
            judged = [(entry, _skip_unread(entry, rules, max_file_bytes)) for entry in batch]
            contents = blobs.read_many([entry.blob_id for entry, skipped in judged if skipped is None])
            for entry, skipped in judged:
                if skipped is None:
                    _, raw = next(contents)
                    yield _examine(entry, raw, rules)
                else:
                    yield skipped


def walk_names(
    mirror_path: Path, commit: str, *, max_file_bytes: int, chosen: str = ""
) -> Iterator[TreeEntry | SkippedEntry]:
    """As `walk`, as far as name, mode and size tell: no file is read."""
    rules = _read_rules(mirror_path, commit, chosen)
    for entry in list_tree(mirror_path, commit):
        yield _skip_unread(entry, rules, max_file_bytes) or entry


def source_of(path: bytes, blob_id: str, raw: bytes) -> SourceFile | SkippedEntry:
    """One file, for a viewer: only what may hold secrets or is no text is refused, whatever `walk` thinks of it."""
    if _is_secret_name(path.rpartition(b"/")[2]):
        return SkippedEntry(path, SkipReason.SECRET, "by its name")
    return _read_text(path, blob_id, raw)


@lru_cache(maxsize=1)  # a large tree is walked range by range
def _read_rules(mirror_path: Path, commit: str, chosen: str) -> PathRules:
    """Read first, because a folder's rules also bind files that Git lists before them."""
    found = list(named_blobs(mirror_path, commit, RULE_FILES | {MODULES_NAME}))
    rules = PathRules(chosen=chosen_rules(chosen) if chosen else None)
    with BlobReader(mirror_path) as blobs:
        contents = blobs.read_many([blob_id for _, blob_id in found], max_bytes=_MAX_RULE_FILE_BYTES)
        for (path, _), (_, content) in zip(found, contents, strict=True):
            rules.add_file(path, content)
    if rules.dropped:
        logger.warning("%s rules in ignore and attribute files were over the limit and are not used", rules.dropped)
    return rules


def _skip_unread(entry: TreeEntry, rules: PathRules, max_file_bytes: int) -> SkippedEntry | None:
    """What mode, name and size tell."""

    def skipped(reason: SkipReason, detail: str = "") -> SkippedEntry:
        return SkippedEntry(entry.path, reason, detail)

    name = entry.path.rpartition(b"/")[2]
    ignored = rules.is_ignored(entry.path)
    if entry.mode == _SUBMODULE_MODE:
        url = rules.submodules.get(entry.path)
        return skipped(SkipReason.SUBMODULE, f"not indexed; add {url or 'it'} as its own repository")
    if entry.mode == _SYMLINK_MODE:
        return skipped(SkipReason.SYMLINK, "what it points to is indexed under its own path")
    if ignored:
        by_choice = rules.chosen is not None and rules.chosen.is_ignored(entry.path)
        return skipped(SkipReason.IGNORED, "by this repository's settings" if by_choice else "by .assistantignore")
    if _is_secret_name(name):
        return skipped(SkipReason.SECRET, "by its name")
    if ignored is None and (unwanted := _unwanted_by_name(entry.path, name, rules)):
        return skipped(*unwanted)
    extension = name.rpartition(b".")[2].lower()
    if extension in _BINARY_EXTENSIONS and extension != name.lower():
        return skipped(SkipReason.BINARY, f".{extension.decode()} file")
    if entry.size == 0:
        return skipped(SkipReason.EMPTY, "0 bytes")
    if entry.size > max_file_bytes:
        detail = f"{_megabytes(entry.size)}, limit {_megabytes(max_file_bytes)} (MAX_FILE_BYTES)"
        return skipped(SkipReason.TOO_LARGE, detail)
    return None


def _is_secret_name(name: bytes) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None and not _EXAMPLE_NAME.fullmatch(name)


def _unwanted_by_name(path: bytes, name: bytes, rules: PathRules) -> tuple[SkipReason, str] | None:
    """Vendored, generated or minified; the repository's linguist attributes are asked before our own lists."""
    vendored = rules.attribute(path, "linguist-vendored")
    generated = rules.attribute(path, "linguist-generated")
    if vendored:
        return SkipReason.VENDORED, "linguist-vendored in .gitattributes"
    if generated:
        return SkipReason.GENERATED, "linguist-generated in .gitattributes"
    if vendored is None and (folder := _vendored_folder(path)):
        return SkipReason.VENDORED, f"in {folder.decode()}/"
    if vendored is None and name in _VENDORED_NAMES:
        return SkipReason.VENDORED, "wrapper script of a build tool"
    if generated is not None:
        return None
    if name in _LOCK_FILES:
        return SkipReason.GENERATED, "lock file"
    if _GENERATED_NAME.fullmatch(name) or not _GENERATED_FOLDERS.isdisjoint(path.split(b"/")[:-1]):
        return SkipReason.GENERATED, "by its name"
    if vendored is None and _MINIFIED_NAME.fullmatch(name):
        return SkipReason.MINIFIED, "by its name"
    return None


def _vendored_folder(path: bytes) -> bytes:
    folders = path.split(b"/")[:-1]
    for depth, folder in enumerate(folders):
        if folder in _VENDORED_FOLDERS and not (
            folder.startswith(b"vendor") and not _PACKAGE_ROOTS.isdisjoint(folders[:depth])
        ):
            return folder
    return b""


def _examine(entry: TreeEntry, raw: bytes, rules: PathRules) -> SourceFile | SkippedEntry:
    """What the content tells."""
    source = _read_text(entry.path, entry.blob_id, raw)
    if isinstance(source, SkippedEntry) or source.route == "openapi":
        return source
    # A notebook's pictures are long lines of base64; what people wrote is in its cells all the same.
    language = "" if source.route == "notebook" else source.language
    unwanted = _unwanted_by_content(entry.path, language, source.text, rules)
    return SkippedEntry(entry.path, *unwanted) if unwanted else source


def _read_text(path: bytes, blob_id: str, raw: bytes) -> SourceFile | SkippedEntry:
    """The decoded file, unless its content is a secret or no text."""

    def skipped(reason: SkipReason, detail: str = "") -> SkippedEntry:
        return SkippedEntry(path, reason, detail)

    if raw.startswith(_LFS_HEAD) and len(raw) < 1024:
        return skipped(SkipReason.LFS_POINTER, "the content is on a Git LFS server")
    name = path.rpartition(b"/")[2]
    if _SECRET_HEAD.search(raw[:_HEAD_BYTES]) or (name.lower() in _LOGIN_FILES and _LOGIN.search(raw)):
        return skipped(SkipReason.SECRET, "a key or login in it")
    decoded = decode_source(raw)
    if decoded is None:
        if (nul_at := raw.find(b"\0")) >= 0:
            return skipped(SkipReason.BINARY, f"NUL byte at {nul_at:,}")
        return skipped(SkipReason.ENCODING, _undecodable(raw))
    if decoded.text.isspace() or not decoded.text:
        return skipped(SkipReason.EMPTY, "only blanks")
    language = language_of(path, decoded.text[:_HEAD_BYTES])
    return SourceFile(
        path=path,
        blob_id=blob_id,
        language=language,
        route="openapi" if is_openapi(language, decoded.text) else route_of(language, path),
        encoding=decoded.encoding,
        raw=raw,
        text=decoded.text,
        offsets=decoded.offsets,
    )


def _unwanted_by_content(path: bytes, language: str, text: bytes, rules: PathRules) -> tuple[SkipReason, str] | None:
    minified = _minified_detail(text) if language in _MINIFIABLE else ""
    generated = "" if language == "markdown" else _generated_detail(text)
    if not (minified or generated):
        return None
    if rules.is_ignored(path) is False or rules.attribute(path, "linguist-generated") is False:
        return None
    return (SkipReason.MINIFIED, minified) if minified else (SkipReason.GENERATED, generated)


def _minified_detail(text: bytes) -> str:
    """Long lines that make up most of the file; one embedded image in a normal file is no reason."""
    if len(text) < _MINIFIED_FROM_BYTES:
        return ""
    lengths = [len(line) for line in text.splitlines()]
    average = len(text) // len(lengths)
    if sum(length for length in lengths if length > _LONG_LINE_BYTES) * 2 > len(text):
        return f"a line of {max(lengths):,} bytes"
    return f"lines of {average:,} bytes on average" if average > _MINIFIED_AVERAGE_BYTES else ""


def _generated_detail(text: bytes) -> str:
    """A marker in a comment among the first lines. Code that writes such markers has them in strings, further down."""
    lines = text[:_HEAD_BYTES].splitlines()[:_HEADER_LINES]
    comments = b"\n".join(match[1] for line in lines if (match := _COMMENT.match(line)))
    if not (marker := _GENERATED_COMMENT.search(comments)):
        return ""
    words = decode(marker[0], "utf-8").strip().splitlines()[0]
    return f"says: {words[:80]}"


def _undecodable(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start:,} is not UTF-8, and no other encoding fits; save the file as UTF-8"
    return "UTF-16 or UTF-32 with faults in it; save the file as UTF-8"


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 100_000 else f"{size / 1000:.1f} KB"
