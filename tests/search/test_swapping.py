"""Models that are swapped while another process searches; `tests/measure_swaps.py` does it many times."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexing import embedding
from tests.measure_swaps import run

pytestmark = pytest.mark.django_db(transaction=True)  # another process has to see the rows


@pytest.mark.parametrize("dimensions", [64, 128])
def test_no_query_meets_vectors_of_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimensions: int
) -> None:
    monkeypatch.setattr(embedding, "get_embedder", embedding.get_embedder)  # put back at the end
    seen = run(tmp_path, swaps=2, dimensions=dimensions)
    assert (seen["published first"], seen["published second"]) == (2, 2)
    assert (seen["mixed"], seen["unanswered"]) == (0, 0)
    assert min(seen["first"], seen["second"]) > 0  # queries of both models were compared with vectors
