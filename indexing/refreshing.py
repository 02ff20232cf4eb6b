"""Which repositories there are to build: from a source somebody named to its row, ready for `building`."""

from __future__ import annotations

from pathlib import Path

from indexing import git, registering
from indexing.access import Principal
from indexing.models import Repository
from indexing.sources import Source, check_ref, parse_source

ANYWHERE = (Path("/"),)  # whoever has the server's shell may read its disk anyway


def add_from_shell(text: str, *, name: str = "", ref: str = "") -> tuple[Repository, bool]:
    """The repository of a Git URL or of any local path, and whether it is new. A new source must answer first.

    Raises InvalidSource, UnreachableSource, NotARepository, UnknownRef.
    """
    source, ref = parse_source(text, from_staff=True, local_roots=ANYWHERE), check_ref(ref)
    if not Repository.objects.filter(mirror__url=source.url, ref=ref).exists():
        git.probe(source, ref)
    return _register(source, name=name, ref=ref)


def repository_at(path: Path, *, name: str = "") -> Repository:
    """The repository of a local path, made when it is new. Raises InvalidSource."""
    source = parse_source(str(path.resolve()), from_staff=True, local_roots=ANYWHERE)
    return _register(source, name=name, ref="")[0]


def _register(source: Source, *, name: str, ref: str) -> tuple[Repository, bool]:
    return registering.register(source, owner=None, principal=Principal.operator(), name=name, ref=ref)
