"""A worker that has nothing to build embeds for a large build of another one: texts are derived here, vectors kept.

In: ranges of files that `sharing` hands out. Out: records in a file of its own beside those of the build. It refuses
builds of another model, another way of cutting or other settings than its own, and publishes nothing.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from indexing import embedding, leases, queueing, sharing
from indexing.errors import IndexingError
from indexing.index_format import Manifest, ModelInfo
from indexing.models import Index
from indexing.suspects import Suspects
from indexing.updating import chunking_fingerprint
from indexing.vector_cache import HelperCache
from indexing.vectorising import Vectoriser, open_segments

log = logging.getLogger(__name__)


def help_builds() -> int:
    """Until nothing is left, or something waits to be built. Returns how many ranges were embedded."""
    if queueing.any_wait():
        return 0
    return sum(_help(index) for index in sharing.builds_with_ranges())


def _help(index: Index) -> int:
    """Whatever goes wrong is the helper's matter alone: the build embeds what does not come."""
    offer, holder, done = sharing.read_offer(index), leases.new_holder(), 0
    try:
        if offer is None or offer.model is None or not _fits(offer, offer.model, index):
            return 0
        name = holder.rpartition(":")[2]
        with HelperCache(index.repository.index_path, offer.model, helper=name) as cache:
            while (claim := sharing.claim(index.pk, holder)) is not None:
                _embed(claim, index, offer, cache=cache, model=offer.model)
                done += 1
    except sharing.HelpOver:
        log.info("index %d needs no more help, or something else waits", index.pk)
    except (IndexingError, OSError) as error:
        log.warning("helping index %d ended: %s", index.pk, type(error).__name__)
    log.info("helped index %d with %d ranges", index.pk, done)
    return done


def _fits(offer: Manifest, model: ModelInfo, index: Index) -> bool:
    """Whether this worker makes the same texts of the files, and the same vectors of the texts."""
    same_texts = offer.chunking == chunking_fingerprint(index.repository)
    return same_texts and embedding.is_current(model, embedding.get_embedder)


def _embed(claim: sharing.Claim, index: Index, offer: Manifest, *, cache: HelperCache, model: ModelInfo) -> None:
    """One range. What ends it early keeps the vectors so far. Raises HelpOver, IndexingError, OSError."""
    directory, row = index.repository.index_path, claim.row
    segments = open_segments(directory, (info for info in offer.segments if info.id == row.segment))
    try:
        with tempfile.TemporaryDirectory() as folder, Suspects(Path(folder)) as suspects:  # for its time limit
            vectoriser = Vectoriser(
                embedding.get_embedder,
                cache,
                model,
                suspects=suspects,
                check=claim.check,
                on_progress=lambda _chunks, _embedded, _path: None,
            )
            for segment in segments:
                vectoriser.embed_files(index.repository.mirror.path, segment, range(row.first_file, row.last_file))
    except sharing.HelpOver:
        claim.hand_back()
        raise
    claim.done()
