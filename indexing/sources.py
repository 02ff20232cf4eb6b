"""What a person typed as a repository -> a `Source` that Git may be pointed at.

Text only: nothing here connects to anything. It refuses whatever could make Git run a program, read the server's
own files or carry a secret: other transports, option-like text, credentials, paths outside the configured roots.
Addresses are checked when a connection is made (`indexing/network.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from django.conf import settings

from indexing.errors import InvalidSource

_EXAMPLE = "https://github.com/pallets/flask"
NO_SOURCE = f"No repository was given. Type a Git URL such as {_EXAMPLE}."
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
_HOST = re.compile(r"(?!-)[a-z0-9-]+(\.(?!-)[a-z0-9-]+)*\.?|\[[0-9a-f:.]+\]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:\s]+)@)?(?P<host>[^@/:\s]+|\[[0-9a-fA-F:.]+\]):(?P<path>[^:].*)")
_TRANSPORT = re.compile(r"[A-Za-z0-9+.-]*::")
_FORBIDDEN_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|^[-./]|\.lock(/|$)|[/.]$|^@$")
_PATH_STARTS = ("/", "~", ".")
_MAX_URL_CHARS = 2000
_MAX_REF_CHARS = 255


@dataclass(frozen=True, slots=True)
class Source:
    """Where commits come from. `url` is normalised: equal sources have equal URLs."""

    url: str
    kind: str  # a value of Mirror.Kind
    default_name: str


def parse_source(text: str, *, from_staff: bool, local_roots: Sequence[Path] | None = None) -> Source:
    """A Git URL (https, http, ssh or user@host:path), or for staff a path on this server.

    `local_roots` are the folders local paths may lie in; None stands for LOCAL_REPOSITORY_ROOTS.
    Raises InvalidSource with a sentence for the person who typed it.
    """
    text = text.strip()
    if not text:
        raise InvalidSource(NO_SOURCE)
    if len(text) > _MAX_URL_CHARS or not text.isprintable():
        raise InvalidSource(f"A Git URL has at most {_MAX_URL_CHARS} characters and no control characters.")
    if text.startswith("-"):
        raise InvalidSource(
            f"{text[:80]!r} looks like an option, not like a repository. Type a URL such as {_EXAMPLE}."
        )
    if _TRANSPORT.match(text):
        raise InvalidSource("Git's helper transports (such as ext::) are not allowed. Use https or ssh.")
    if "://" in text:
        return _parse_url(text)
    if from_staff and (text.startswith(_PATH_STARTS) or os.path.isdir(text)):
        return _parse_path(text, settings.LOCAL_REPOSITORY_ROOTS if local_roots is None else local_roots)
    if text.startswith(_PATH_STARTS):
        raise InvalidSource(f"Paths on the server can be added by staff only. Type a Git URL such as {_EXAMPLE}.")
    if match := _SCP_LIKE.fullmatch(text):
        return _parse_scp_like(match)
    raise InvalidSource(f"{text[:80]!r} is not a Git URL. Type the whole URL, such as {_EXAMPLE}.")


def check_ref(ref: str) -> str:
    """The branch, tag or commit, stripped; empty stands for the default branch. Raises InvalidSource.

    The rules are those of git-check-ref-format, which also keep revision expressions (`main~3`) and options out.
    """
    ref = ref.strip()
    if len(ref) > _MAX_REF_CHARS or _FORBIDDEN_IN_REF.search(ref):
        raise InvalidSource(f"{ref[:80]!r} is not a name of a branch, tag or commit.")
    return ref


def _parse_path(text: str, roots: Sequence[Path]) -> Source:
    """`text` made absolute, links followed, so that a link inside a root cannot lead out of it."""
    try:
        path = Path(text).expanduser().resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InvalidSource(f"{text[:200]!r} does not exist on this server.") from error
    if path.is_relative_to(Path(settings.DATA_DIR).resolve()):
        # Mirrors of private repositories lie there, and who may read those is not decided by a path.
        raise InvalidSource(f"{text[:200]!r} is among this server's own data. Add the repository by its own address.")
    if not any(path.is_relative_to(root) for root in roots):
        allowed = ", ".join(str(root) for root in roots) or "none"
        raise InvalidSource(
            f"{path} is outside the allowed folders ({allowed}). Add its folder to LOCAL_REPOSITORY_ROOTS."
        )
    return Source(url=str(path), kind="local", default_name=path.name.removesuffix(".git") or "repository")


def _parse_url(text: str) -> Source:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidSource(f"The address in this URL is not valid. Type a URL such as {_EXAMPLE}.") from error
    scheme = parts.scheme.lower()
    if scheme == "file":
        raise InvalidSource("file:// URLs are not allowed. Staff can add the path itself.")
    if scheme not in _DEFAULT_PORTS:
        raise InvalidSource(f"{scheme or 'This'}:// is not allowed. Use https or ssh.")
    if parts.query or parts.fragment:
        raise InvalidSource("Leave out everything from the first ? or # of the URL.")
    if parts.password is not None or (parts.username is not None and scheme != "ssh"):
        raise InvalidSource(
            "User names, passwords and tokens do not belong into URLs: they would be stored and shown. "
            "Type the URL without them, and give the token under the login for a private repository."
        )
    user = _checked_user(parts.username)
    netloc = (
        user + _checked_host(parts.hostname or "") + (f":{port}" if port and port != _DEFAULT_PORTS[scheme] else "")
    )
    path = _checked_path(parts.path, keep_suffix=scheme == "ssh")
    _refuse_page_of_github(parts, path)
    return Source(url=f"{scheme}://{netloc}{path}", kind="remote", default_name=_default_name(path))


def _parse_scp_like(match: re.Match[str]) -> Source:
    """`git@host:path` -> ssh://git@host/path.

    A relative path starts in the user's home. Hosting sites serve the user `git` from its root; for any other
    user `/~/` says "home" in the URL form.
    """
    user = _checked_user(match["user"])
    path = match["path"]
    if not path.startswith("/"):
        path = f"/{path}" if match["user"] in (None, "git") else f"/~/{path}"
    path = _checked_path(quote(path, safe="/~:@%+,"), keep_suffix=True)
    return Source(
        url=f"ssh://{user}{_checked_host(match['host'])}{path}", kind="remote", default_name=_default_name(path)
    )


def _checked_user(user: str | None) -> str:
    if user is None:
        return ""
    if not _USER.fullmatch(user):
        raise InvalidSource("The user name in this URL is not valid. It is `git` on most hosting sites.")
    return f"{user}@"


def _checked_host(host: str) -> str:
    """Lower case. An address must be written plainly: 127.1, 0x7f.1 and 2130706433 hide what they are."""
    host = host.lower()
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    if not _HOST.fullmatch(host):
        raise InvalidSource(f"The host name in this URL is not valid. Type a URL such as {_EXAMPLE}.")
    last_label = host.rstrip(".").rpartition(".")[2]
    if re.fullmatch(r"0x[0-9a-f]*|[0-9]+", last_label) and not _is_dotted_quad(host):
        raise InvalidSource("Write the IP address in this URL as four plain numbers, or use the host's name.")
    return host.rstrip(".")


def _is_dotted_quad(host: str) -> bool:
    labels = host.split(".")
    return len(labels) == 4 and all(re.fullmatch(r"0|[1-9][0-9]{0,2}", label) for label in labels)


def _checked_path(path: str, *, keep_suffix: bool) -> str:
    """Web servers serve `x` and `x.git` alike, so the suffix goes (Git retries with it); SSH servers may not."""
    path = re.sub(r"/{2,}", "/", path).rstrip("/")
    plain = unquote(path)
    segments = plain.split("/")
    if (
        len(path) < 2
        or " " in path
        or not plain.isprintable()
        or any(segment.startswith("-") or segment == ".." for segment in segments)
    ):
        raise InvalidSource(f"The path in this URL is not valid. Type a URL such as {_EXAMPLE}.")
    return path if keep_suffix else path.removesuffix(".git")


def _refuse_page_of_github(parts: SplitResult, path: str) -> None:
    """People paste the address of the page they are looking at."""
    segments = path.strip("/").split("/")
    if (parts.hostname or "").lower() in {"github.com", "www.github.com"} and len(segments) > 2:
        raise InvalidSource(
            f"This is a page inside a repository. Use https://github.com/{'/'.join(segments[:2])} "
            "and, if you want another branch, type it as the ref."
        )


def _default_name(path: str) -> str:
    segments = [segment for segment in unquote(path).removesuffix(".git").split("/") if segment not in {"", "~"}]
    return "/".join(segments[-2:])[:200]
