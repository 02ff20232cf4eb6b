from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indexing.index_format import MANIFEST, Coverage, ProfileInfo
from indexing.index_writing import publish
from search import catalogue
from search.corpus import Corpus, Source
from search.index_cache import opened
from search.lexical import bm25
from search.wording import wording
from tests.factories import commit_files
from tests.indexing.stub_embedder import StubEmbedder
from tests.search.conftest import Indexed

SHOP = {"orders.py": "def cancel_order():\n    return refund\n", "cart.py": "def fill_cart(): ...\n"}
MAIL = {"send.py": "def send_message(to):\n    return smtp.connect(to)\n"}
QUERY = wording("refund the order by smtp").stems


def best_chunks(*repositories) -> list[float]:
    """By opening each index: what the catalogue must not be below."""
    corpus = Corpus([Source(one.pk, one.name, False, opened(one.index_path)) for one in repositories])
    scores = bm25(corpus.postings(catalogue.TERM_LIST), QUERY)
    edges = [part.first_chunk for part in corpus.parts] + [corpus.chunk_count]
    return [float(scores[start:end].max()) for start, end in zip(edges, edges[1:], strict=False)]


def test_it_knows_how_much_the_best_chunk_is_worth(indexed: Indexed) -> None:
    shop, mail = indexed("acme/shop", SHOP), indexed("acme/mail", MAIL)
    found = catalogue.current()
    rows = found.rows([shop.pk, mail.pk])
    most = found.most(QUERY, rows, found.statistics(QUERY, rows))
    assert np.all(most >= np.array(best_chunks(shop, mail)) * 0.9)  # lengths are those of each repository alone
    assert most[0] > most[1] > 0


def test_it_counts_only_what_it_is_asked_about(indexed: Indexed) -> None:
    shop, mail = indexed("acme/shop", SHOP), indexed("acme/mail", MAIL)
    found = catalogue.current()
    both = found.statistics(QUERY, found.rows([shop.pk, mail.pk]))
    alone = found.statistics(QUERY, found.rows([mail.pk]))
    assert both.documents == alone.documents + opened(shop.index_path).chunk_count
    assert alone.frequencies.sum() == 1  # smtp


def test_it_compares_vectors_of_the_same_model_only(indexed: Indexed, embedder: StubEmbedder) -> None:
    shop, mail = indexed("acme/shop", SHOP), indexed("acme/mail", MAIL)
    found = catalogue.current()
    vector = embedder.embed_queries(["send_message smtp connect"])[0]
    nearness = found.nearness(vector, found.rows([shop.pk, mail.pk]), embedder.info)
    assert nearness[1] > nearness[0]
    assert not found.nearness(vector, found.rows([shop.pk]), StubEmbedder(revision="2").info).any()


def test_it_sees_an_update_and_a_removal(indexed: Indexed, tmp_path: Path) -> None:
    from indexing.building import build_now
    from indexing.registering import remove

    mail = indexed("acme/mail", MAIL)
    before = catalogue.current()
    assert not before.statistics(wording("postcard").stems, before.rows([mail.pk])).frequencies.any()
    commit_files(tmp_path / "acme-mail", {"post.py": "def postcard(): ...\n"})
    build_now(mail)
    after = catalogue.current()
    assert after.statistics(wording("postcard").stems, after.rows([mail.pk])).frequencies.any()
    pk = mail.pk
    remove(mail)
    assert catalogue.current().rows([pk]).tolist() == [-1]


def test_it_knows_an_index_without_vectors(indexed: Indexed, embedder: StubEmbedder) -> None:
    shop = indexed("acme/shop", SHOP)
    words_only = replace(opened(shop.index_path).manifest, profile=ProfileInfo(), coverage=Coverage(lexical=1.0))
    publish(shop.index_path, words_only)
    found = catalogue.current()
    rows = found.rows([shop.pk])
    assert not found.has_vectors(rows)
    assert not found.nearness(embedder.embed_queries(["refund"])[0], rows, embedder.info).any()
    assert found.statistics(QUERY, rows).frequencies.any()


def test_it_holds_no_file_of_an_index_open(indexed: Indexed) -> None:
    """Those of ten thousand repositories were more than the system lets a process map."""
    shop = indexed("acme/shop", SHOP)
    assert catalogue.current().rows([shop.pk]).tolist() == [0]
    gc.collect()  # readers of other tests
    assert str(shop.index_path) not in Path("/proc/self/maps").read_text()


def test_it_leaves_out_a_damaged_index(indexed: Indexed) -> None:
    shop, mail = indexed("acme/shop", SHOP), indexed("acme/mail", MAIL)
    (shop.index_path / MANIFEST).write_text("{")
    assert catalogue.current().rows([shop.pk, mail.pk]).tolist()[0] == -1
    assert catalogue.current().rows([mail.pk])[0] >= 0


def test_it_is_the_same_when_it_comes_from_its_file(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, mail = indexed("acme/shop", SHOP), indexed("acme/mail", MAIL)
    found = catalogue.current()
    keeper = next(iter(catalogue._keepers.values()))
    keeper._write(keeper._known())
    catalogue._keepers.clear()
    monkeypatch.setattr(catalogue, "open_index", None)  # nothing is read anew
    again = catalogue.current()
    for rows, one in ((found.rows([shop.pk, mail.pk]), found), (again.rows([shop.pk, mail.pk]), again)):
        assert one.statistics(QUERY, rows).documents == 3
    rows, old = again.rows([shop.pk, mail.pk]), found.rows([shop.pk, mail.pk])
    assert np.allclose(
        again.most(QUERY, rows, again.statistics(QUERY, rows)), found.most(QUERY, old, found.statistics(QUERY, old))
    )


def test_a_file_that_cannot_be_read_is_made_anew(indexed: Indexed, data_dir: Path) -> None:
    shop = indexed("acme/shop", SHOP)
    (data_dir / "catalogue").mkdir()
    (data_dir / "catalogue" / catalogue.CURRENT).write_text(json.dumps({"version": 1, "folder": "gone", "models": []}))
    catalogue._keepers.clear()
    assert catalogue.current().rows([shop.pk])[0] >= 0
