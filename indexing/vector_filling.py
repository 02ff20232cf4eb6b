"""Published indexes -> Milvus: after each build, and again and again for what a server that was away has missed."""

from __future__ import annotations

import logging

from indexing import milvus
from indexing.errors import IndexFormatError, VectorsUnavailable
from indexing.index_format import open_index
from indexing.index_writing import retired_manifests
from indexing.models import Repository

log = logging.getLogger(__name__)


def fill_repository(repository: Repository) -> int:
    """How many matrices were new. Raises VectorsUnavailable, IndexFormatError."""
    if not milvus.enabled():
        return 0
    return milvus.fill(open_index(repository.index_path), keep=retired_manifests(repository.index_path))


def fill_all() -> int:
    """Everything that can be searched. Ends at the first failure of the server: the next round goes on."""
    new = 0
    if not milvus.enabled():
        return new
    for repository in Repository.objects.searchable().order_by("pk"):
        try:
            new += fill_repository(repository)
        except IndexFormatError:
            log.warning("the index of repository %d cannot be read; its vectors are not filled in", repository.pk)
        except VectorsUnavailable as error:
            log.warning("vectors are not filled in: %s", error)
            break
    return new
