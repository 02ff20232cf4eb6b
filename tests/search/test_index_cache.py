from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from indexing.access import Principal
from indexing.models import Index
from search import catalogue
from search.index_cache import opened
from search.pipeline import search
from search.snippets import read_snippets
from tests.search.conftest import Indexed

SHOP = {"orders.py": "def cancel_order():\n    return refund\n"}
QUESTION = "where is an order cancelled?"


@pytest.fixture
def local_copies(tmp_path: Path, settings: Settings) -> None:
    settings.SEGMENT_CACHE_DIR = str(tmp_path / "local")


def test_it_keeps_an_index_open_until_a_newer_one_is_published(indexed: Indexed) -> None:
    shop = indexed("acme/shop", SHOP)
    assert opened(shop.index_path) is opened(shop.index_path)


@pytest.mark.usefixtures("local_copies")
def test_it_answers_from_local_copies_while_the_volume_is_away(indexed: Indexed, settings: Settings) -> None:
    indexed("acme/shop", SHOP)
    before = search(QUESTION, principal=Principal.operator(), use_llm=False)
    for name in ("indexes", "mirrors"):
        (settings.DATA_DIR / name).rename(settings.DATA_DIR / f"{name}.away")
    meanwhile = search(QUESTION, principal=Principal.operator(), use_llm=False)
    assert read_snippets(meanwhile.hits) == [""]
    assert [hit.path for hit in meanwhile.hits] == [hit.path for hit in before.hits] == [b"orders.py"]
    for name in ("indexes", "mirrors"):
        (settings.DATA_DIR / f"{name}.away").rename(settings.DATA_DIR / name)
    assert "cancel_order" in read_snippets(search(QUESTION, principal=Principal.operator(), use_llm=False).hits)[0]


@pytest.mark.usefixtures("local_copies")
def test_it_asks_for_no_new_index_because_the_volume_is_away(indexed: Indexed, settings: Settings) -> None:
    indexed("acme/shop", SHOP)
    (settings.DATA_DIR / "indexes").rename(settings.DATA_DIR / "away")
    catalogue._keepers.clear()  # a process that starts
    found = search(QUESTION, principal=Principal.operator(), use_llm=False)
    assert found.trace.notices[0].startswith("acme/shop could not be searched: the volume with the indexes is away.")
    assert Index.objects.count() == 1
