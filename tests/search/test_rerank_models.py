"""RERANK_MODEL: a cross-encoder on this machine, or a provider's model, in place of the language model's grades."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pytest_django import Settings

from indexing import llm
from indexing.models import LLMCall
from search import cross_encoder
from search.reranking import rerank
from tests.search.test_reranking import HITS, QUESTION, SNIPPETS, order


class Provider(ThreadingHTTPServer):
    """Speaks Cohere's rerank API: scores passages by `scores`, or answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scores: list[float] = []
        self.status = 200
        self.requests: list[dict[str, object]] = []
        self.keys: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.keys.append(self.headers["authorization"])
        results = [{"index": place, "relevance_score": score} for place, score in enumerate(self.server.scores)]
        body = json.dumps({"id": "1", "results": results, "meta": {"billed_units": {"search_units": 1}}}).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    server = Provider()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("COHERE_API_KEY", "of-another-host")
    settings.LLM_MODEL = ""
    settings.RERANK_MODEL = "cohere/rerank-v3.5"
    settings.RERANK_API_BASE = f"http://127.0.0.1:{server.server_port}/v2/rerank"
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.django_db
def test_it_orders_near_equals_by_the_scores_of_a_provider(provider: Provider, settings: Settings) -> None:
    settings.RERANK_API_KEY = "key-of-this-host"
    provider.scores = [0.1, 0.2, 0.9, 0.3]
    reranked = rerank(QUESTION, HITS, ["password = 'hunter22hunter22'", *SNIPPETS[1:]], keep=10)
    assert (order(reranked), reranked.state, reranked.dropped) == ([3, 4, 2, 1], "done", ())
    assert provider.keys == ["Bearer key-of-this-host"]
    sent = provider.requests[0]
    assert sent["query"] == QUESTION
    assert "src/file2.py" in str(sent["documents"])
    assert "hunter22" not in str(sent)
    assert LLMCall.objects.get().purpose == LLMCall.Purpose.RERANK


@pytest.mark.django_db
def test_it_sends_a_provider_s_key_of_the_environment_to_no_other_host(provider: Provider) -> None:
    provider.scores = [0.1, 0.2, 0.3, 0.4]
    rerank(QUESTION, HITS, SNIPPETS, keep=10)
    assert provider.keys == ["Bearer none"]


@pytest.mark.django_db
def test_it_keeps_the_search_order_and_says_why_when_the_provider_refuses(provider: Provider) -> None:
    provider.status = 401
    reranked = rerank(QUESTION, HITS, SNIPPETS, keep=10)
    assert (order(reranked), reranked.state) == ([1, 2, 3, 4], "failed")
    assert "The re-ranking model at 127.0.0.1 answered 401" in reranked.notice
    assert "RERANK_API_KEY" in reranked.notice


@pytest.mark.django_db
def test_it_takes_what_a_provider_scored_and_leaves_the_others_where_they_were(provider: Provider) -> None:
    provider.scores = [0.2, 0.9]
    assert order(rerank(QUESTION, HITS, SNIPPETS, keep=10))[0] == 2
    provider.scores = []
    reranked = rerank(QUESTION, HITS, SNIPPETS, keep=10)
    assert (order(reranked), reranked.state) == ([1, 2, 3, 4], "failed")


def test_it_says_where_passages_go(settings: Settings) -> None:
    settings.RERANK_MODEL, settings.RERANK_API_BASE = "cohere/rerank-v3.5", "https://api.cohere.com/v2/rerank"
    place = llm.reranker_place()
    assert place is not None
    assert (place.host, place.local) == ("api.cohere.com", False)
    settings.RERANK_MODEL = "local/somewhere"
    assert llm.reranker_place() is None


@pytest.fixture(scope="module")
def tiny_cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights and the words of its vocabulary."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("cross-encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sessions", "stored", "symbol", "def", "pass", "_", "1", "2"]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        num_labels=1, max_position_embeddings=512, initializer_range=1.0,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_it_orders_by_a_cross_encoder_of_this_machine(settings: Settings, tiny_cross_encoder: Path) -> None:
    settings.LLM_MODEL, settings.RERANK_MODEL = "", f"local/{tiny_cross_encoder}"
    passages = ["def symbol 1", "def symbol 2 pass", "sessions stored"]
    scores = cross_encoder.relevances("sessions", passages)
    assert sorted(scores) == [0, 1, 2]
    assert len(set(scores.values())) == 3
    reranked = rerank(QUESTION, HITS, SNIPPETS, keep=10)
    assert reranked.state == "done"
    assert sorted(order(reranked)) == [1, 2, 3, 4]


def test_it_keeps_the_search_order_where_no_cross_encoder_is(settings: Settings, tmp_path: Path) -> None:
    settings.LLM_MODEL, settings.RERANK_MODEL = "", f"local/{tmp_path}"
    reranked = rerank(QUESTION, HITS, SNIPPETS, keep=10)
    assert (order(reranked), reranked.state) == ([1, 2, 3, 4], "failed")
    assert "Set RERANK_MODEL to local/ and the folder of its files." in reranked.notice
