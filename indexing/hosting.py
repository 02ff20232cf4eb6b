"""Links to the hosting site's own page of some lines; empty when the site is not known."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

# How each kind of site writes a permalink. {repository} is the site's address of the repository.
_FORMS = {
    "github": "{repository}/blob/{commit}/{path}{plain}#L{start}-L{end}",
    "gitlab": "{repository}/-/blob/{commit}/{path}{plain}#L{start}-{end}",
    "gitea": "{repository}/src/commit/{commit}/{path}{display}#L{start}-L{end}",
    "bitbucket": "{repository}/src/{commit}/{path}#lines-{start}:{end}",
    "sourcehut": "{repository}/tree/{commit}/item/{path}#L{start}-{end}",
}
_KNOWN_HOSTS = {"codeberg.org": "gitea", "bitbucket.org": "bitbucket", "git.sr.ht": "sourcehut", "gitea.com": "gitea"}
_HOST_WORDS = {"github": "github", "gitlab": "gitlab", "gitea": "gitea", "forgejo": "gitea"}
_RENDERED_SUFFIXES = (b".md", b".markdown", b".mdx", b".rst", b".adoc", b".org", b".ipynb")


def hosting_url(mirror_url: str, commit: str, path: bytes, start_line: int, end_line: int) -> str:
    """Permalink of the lines `start_line` to `end_line` of `path` at `commit`, for https and ssh mirrors alike.

    Sites render documents, and a rendered page has no line anchors: those get the parameter that shows the source.
    """
    parts = urlsplit(mirror_url)
    host = parts.hostname or ""
    kind = _KNOWN_HOSTS.get(host) or next((kind for word, kind in _HOST_WORDS.items() if word in host.split(".")), "")
    if parts.scheme not in {"https", "http", "ssh"} or not kind:
        return ""
    rendered = path.lower().endswith(_RENDERED_SUFFIXES)
    return _FORMS[kind].format(
        repository=_web_address(mirror_url),
        commit=commit,
        path=quote(path, safe="/"),
        plain="?plain=1" if rendered else "",
        display="?display=source" if rendered else "",
        start=start_line,
        end=end_line,
    )


def _web_address(mirror_url: str) -> str:
    """An ssh URL names another port and user than the site's pages do; an http(s) URL is already theirs."""
    parts = urlsplit(mirror_url)
    path = quote(parts.path.removesuffix(".git"), safe="/~%")
    return f"https://{parts.hostname}{path}" if parts.scheme == "ssh" else f"{parts.scheme}://{parts.netloc}{path}"
