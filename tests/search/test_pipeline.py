from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from indexing import llm
from indexing.access import Principal
from indexing.errors import EmbeddingError
from indexing.index_format import MANIFEST
from indexing.models import Repository
from search import pipeline, reranking
from search.errors import EmptyQuestion
from search.pipeline import search
from search.results import QueryPlan, Scope, SearchOptions, Stage
from tests.factories import make_user
from tests.fake_llm import FakeLLM
from tests.indexing.stub_embedder import StubEmbedder
from tests.search.conftest import Indexed

SHOP: dict[str, str | bytes] = {
    "shop/orders.py": "def cancel_order(number):\n    '''Cancel an order, refund it.'''\n    return number\n",
    "shop/stock.py": "class Stock:\n    def take(self, item):\n        self.items.remove(item)\n        return item\n",
    "tests/test_orders.py": "from shop import orders\n\n\ndef test_cancel():\n    assert orders.cancel_order(1)\n",
    "docs/guide.md": "# Guide\n\nHow to cancel an order: call it.\n",
}
OPERATOR = Principal.operator()


def paths(question: str, **options: object) -> list[str]:
    result = search(question, principal=OPERATOR, **options)  # type: ignore[arg-type]
    return [hit.display_path for hit in result.hits]


def test_it_puts_the_defining_code_before_tests_and_docs(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    assert paths("how is an order cancelled")[0] == "shop/orders.py"
    assert paths("cancel_order")[0] == "shop/orders.py"


def test_it_puts_tests_first_when_they_are_asked_for(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    assert paths("test that an order is cancelled")[0] == "tests/test_orders.py"


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize(
    ("path", "code", "question"),
    [
        ("Ops.hs", "module Ops where\n\n(<+>) :: Int -> Int -> Int\na <+> b = max a b\n", "what does <+> do?"),
        ("Form.scala", "class Form {\n  def ++(other: Form): Form = this\n}\n", "++"),
        (
            "value.hpp",
            "struct Value {\n  bool operator!=(const Value& v) const { return x != v.x; }\n};\n",
            "operator!=",
        ),
        ("memo.rb", "class Memo\n  def []=(key, value)\n    @all = value\n  end\nend\n", "how is `[]=` implemented"),
        ("And.swift", "func && (a: Bool, b: Bool) -> Bool {\n    return a\n}\n", "(&&)"),
    ],
)
def test_it_finds_where_an_operator_is_defined(
    indexed: Indexed, path: str, code: str, question: str, vectors: bool
) -> None:
    indexed("acme/shop", SHOP | {path: code})
    indexed("acme/mail", {"send.py": "def send(to):\n    return to\n"})
    result = search(question, principal=OPERATOR, options=SearchOptions(vectors=vectors, repositories=1))
    assert [hit.display_path for hit in result.hits][:1] == [path]
    assert "defines the operator" in result.trace.repositories[0].reasons


def test_it_finds_each_definition_of_a_name_that_is_used_more_elsewhere(indexed: Indexed, settings: Settings) -> None:
    settings.SEARCH_CANDIDATES_PER_QUERY = 1
    use = "def use():\n" + "    stock = fetch_all() + fetch_all()\n" * 40
    long = "def fetch_all():\n" + "".join(f"    step{i} = prepare(step{i - 1})\n" for i in range(1, 40))
    indexed("acme/shop", dict.fromkeys(("a.py", "b.py", "c.py"), f"{use}\n\n{long}"))
    hits = search("where is fetch_all from", principal=OPERATOR, options=SearchOptions(vectors=False)).hits
    assert {(hit.display_path, hit.copies) for hit in hits if hit.symbol == "fetch_all"} == {("a.py", 3)}


def test_it_returns_coordinates_that_select_the_bytes(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    hit = search("cancel_order", principal=OPERATOR).hits[0]
    raw = str(SHOP["shop/orders.py"]).encode()
    assert raw[hit.start_byte : hit.end_byte].startswith(b"def cancel_order")
    assert (hit.symbol, hit.kind, hit.start_line, hit.end_line) == ("cancel_order", "function", 1, 3)


def test_it_never_shows_what_the_person_may_not_read(indexed: Indexed) -> None:
    owner, other = make_user(), make_user()
    indexed("acme/secret", SHOP, visibility=Repository.Visibility.PRIVATE, owner=owner)
    mine = search("cancel_order", principal=Principal.of_user(owner))
    theirs = search("cancel_order", principal=Principal.of_user(other))
    assert mine.hits
    assert (theirs.hits, theirs.trace.readable_repositories, theirs.trace.repositories) == ((), 0, ())
    assert "secret" not in json.dumps(theirs.trace.to_json())


def test_it_does_not_open_a_forbidden_repository_that_is_pinned(indexed: Indexed) -> None:
    owner, other = make_user(), make_user()
    secret = indexed("acme/secret", SHOP, visibility=Repository.Visibility.PRIVATE, owner=owner)
    result = search("cancel_order", principal=Principal.of_user(other), scope=Scope(repository_ids=(secret.pk,)))
    assert result.hits == ()


def test_it_searches_only_pinned_repositories(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    pinned = indexed("acme/cafe", {"order.py": "def cancel_order():\n    return None\n"})
    result = search("cancel_order", principal=OPERATOR, scope=Scope(repository_ids=(pinned.pk,)))
    assert {hit.repository for hit in result.hits} == {"acme/cafe"}
    assert result.trace.repositories[0].reasons == ("pinned with @",)


def test_it_filters_by_folder_and_prefers_a_folder(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    assert set(paths("order", scope=Scope(path_filter="docs"))) == {"docs/guide.md"}
    assert len(set(paths("order", scope=Scope(path="docs")))) > 1


@pytest.mark.parametrize("folder", ["shop", "/shop/", "./shop", "shop//", "shop/orders.py"])
def test_a_folder_is_not_its_neighbours(indexed: Indexed, folder: str) -> None:
    indexed("acme/shop", {**SHOP, "shop_old/orders.py": "def cancel_order():\n    '''Cancel it at once.'''\n"})
    assert set(paths("cancel order", scope=Scope(path_filter=folder))) - {"shop/stock.py"} == {"shop/orders.py"}


def test_it_keeps_to_the_languages_asked_for(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    assert set(paths("cancel order", scope=Scope(languages=("markdown",)))) == {"docs/guide.md"}


@pytest.mark.parametrize("question", ["how is an order cancelled and refunded", "refund"])
def test_files_of_other_languages_take_no_places(indexed: Indexed, settings: Settings, question: str) -> None:
    settings.SEARCH_CANDIDATES_PER_QUERY = settings.RERANK_CANDIDATES = 3
    settings.SEARCH_REPOSITORIES = 1
    code = "def refund_{0}(order):\n    '''Refund order {0}: cancel it.'''\n    return refund(order, {0})\n"
    many = {f"shop/refund{number}.py": code.format(number) for number in range(30)}
    indexed("acme/shop", {**many, "notes.md": "# Notes\n\nWhat else is said here. A refund is seldom.\n"})
    indexed("acme/cafe", {"a.go": "package a\n\nfunc Seldom() int {\n\treturn refund()\n}\n"})
    assert paths(question, scope=Scope(languages=("markdown",)), limit=2) == ["notes.md"]
    assert paths(question, scope=Scope(languages=("go",)), limit=2) == ["a.go"]
    assert paths(question, scope=Scope(path_filter="a.go"), limit=2) == ["a.go"]
    assert paths('"return"', scope=Scope(path_filter="a.go"), limit=2) == ["a.go"]
    for scope in (Scope(languages=("cobol",)), Scope(path_filter="../shop\0"), Scope(path_filter="sho")):
        result = search(question, principal=OPERATOR, scope=scope)
        assert (result.hits, len(result.trace.notices)) == ((), 1)
        assert result.trace.notices[0].startswith("No indexed file fits ")


def test_it_shows_identical_copies_once(indexed: Indexed) -> None:
    indexed("acme/shop", {**SHOP, "backup/orders.py": SHOP["shop/orders.py"]})
    hits = [hit for hit in search("cancel_order", principal=OPERATOR).hits if hit.symbol == "cancel_order"]
    assert [hit.copies for hit in hits] == [2]


def test_a_hit_counts_as_much_as_its_repository_fits(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    indexed("acme/mail", {"send.py": "def send_order_mail(order):\n    return smtp.send(order)\n"})
    result = search("cancel an order and refund it", principal=OPERATOR)
    fit = {choice.name: choice.score for choice in result.trace.repositories}
    assert fit["acme/shop"] == 1 > fit["acme/mail"]
    assert result.hits[0].repository == "acme/shop"


def test_a_word_is_as_rare_as_in_all_that_the_person_may_read(indexed: Indexed) -> None:
    indexed("acme/shop", {"a.py": "def refund_order():\n    return 1\n"})
    indexed("acme/cafe", {"b.py": "def refund_coffee():\n    return 2\n"})

    def score() -> float:
        return (
            search("refund", principal=OPERATOR, options=SearchOptions(repositories=2)).hits[0].legs["terms.code_stems"]
        )

    among_two = score()
    indexed("acme/mail", {"c.py": "def send_message():\n    return 3\n"})
    assert among_two < score() < 4 * among_two


def test_of_copies_it_shows_the_own_source(indexed: Indexed) -> None:
    copied = {**SHOP, "deps/shop/orders.py": SHOP["shop/orders.py"]}
    indexed("acme/app", {"external/orders.py": SHOP["shop/orders.py"]})
    indexed("acme/shop", copied)
    hits = [hit for hit in search("cancel_order", principal=OPERATOR).hits if hit.symbol == "cancel_order"]
    assert [(hit.repository, hit.display_path, hit.copies) for hit in hits] == [("acme/shop", "shop/orders.py", 3)]


def test_of_copies_it_shows_that_of_the_golden_repository(indexed: Indexed) -> None:
    indexed("acme/fork", SHOP)
    indexed("acme/shop", SHOP, golden=True)
    hits = [hit for hit in search("cancel_order", principal=OPERATOR).hits if hit.symbol == "cancel_order"]
    assert [(hit.repository, hit.copies) for hit in hits] == [("acme/shop", 2)]


def test_it_searches_by_words_when_the_model_fails(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed("acme/shop", SHOP)
    _break_embedding(monkeypatch)
    result = search("cancel_order", principal=OPERATOR)
    assert result.hits[0].display_path == "shop/orders.py"
    assert result.trace.notices == ("Searched by words only: The model is not there.",)


def test_it_never_compares_vectors_of_two_models(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed("acme/shop", SHOP)
    monkeypatch.setattr("indexing.embedding.get_embedder", lambda: StubEmbedder(revision="2"))
    result = search("cancel_order", principal=OPERATOR)
    assert not any(name.startswith("vectors.") for hit in result.hits for name in hit.legs)
    assert "another model" in result.trace.notices[0]


def test_it_goes_on_without_a_damaged_index(indexed: Indexed) -> None:
    damaged = indexed("acme/shop", SHOP)
    indexed("acme/cafe", {"order.py": "def cancel_order():\n    return None\n"})
    (damaged.index_path / MANIFEST).write_text("{")
    result = search("cancel_order", principal=OPERATOR)
    assert {hit.repository for hit in result.hits} == {"acme/cafe"}
    assert "acme/shop could not be searched" in result.trace.notices[0]


@pytest.mark.parametrize("question", ["???", "-> ::", "a" * 30_000, "\u202eאיך\u200f", "x OR (", "'\";--", "\x00"])
def test_it_answers_any_question(indexed: Indexed, question: str) -> None:
    indexed("acme/shop", SHOP)
    assert search(question, principal=OPERATOR).trace.readable_repositories == 1


def test_it_refuses_an_empty_question() -> None:
    with pytest.raises(EmptyQuestion, match="empty"):
        search(" \n", principal=OPERATOR)


@pytest.mark.django_db
def test_it_finds_nothing_when_nothing_is_indexed() -> None:
    assert search("order", principal=OPERATOR).hits == ()


def test_it_reports_stages_as_they_begin_and_end(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    seen: list[tuple[str, str]] = []
    search("order", principal=OPERATOR, on_stage=lambda stage: seen.append((stage.name, stage.state)))
    assert seen[0] == ("plan", "now")
    for name in ("plan", "embed", "repositories", "retrieve", "rank"):
        assert seen.index((name, "now")) < seen.index((name, "done"))


def test_it_shows_a_first_ranking_while_the_model_plans(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    indexed("acme/shop", SHOP)
    settings.LLM_MODEL = "scripted"
    made = QueryPlan("take an item from stock", source="llm")
    monkeypatch.setattr(pipeline, "plan", lambda *args, **options: made)
    monkeypatch.setattr(reranking, "rerank", lambda question, hits, *args, **options: _as_they_are(hits))
    first: list[str] = []
    result = search(
        "how is an order refunded",
        principal=OPERATOR,
        on_hits=lambda hits: first.extend(hit.display_path for hit in hits[:1]),
    )
    assert first == ["shop/orders.py"]
    assert (result.trace.plan, result.hits[0].display_path) == (made, "shop/stock.py")


def test_it_says_when_the_models_plan_could_not_be_used(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    indexed("acme/shop", SHOP)
    settings.LLM_MODEL = "scripted"
    basic = QueryPlan("cancel_order", notice="The model did not return a valid plan.")
    monkeypatch.setattr(pipeline, "plan", lambda *args, **options: basic)
    monkeypatch.setattr(reranking, "rerank", lambda question, hits, *args, **options: _as_they_are(hits))
    result = search("how is an order refunded", principal=OPERATOR)
    plan_stage = next(stage for stage in result.trace.stages if stage.name == "plan")
    assert (plan_stage.state, plan_stage.llm) == ("failed", True)
    assert "The model did not return a valid plan." in result.trace.notices
    assert result.hits[0].display_path == "shop/orders.py"


def test_it_leaves_the_model_alone_when_told_so(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed("acme/shop", SHOP)
    monkeypatch.setattr(llm, "configured", lambda: True)
    result = search("cancel_order", principal=OPERATOR, use_llm=False)
    assert not any(stage.llm for stage in result.trace.stages)


@pytest.mark.parametrize(
    "plan",
    [
        QueryPlan("zebra", hypothetical_document="self.items.remove(item)\nreturn item"),
        QueryPlan("zebra", origin_language_query="物品 stock 取"),
        QueryPlan("take from stock", origin_language_query="", hypothetical_document="zebra"),
    ],
)
def test_it_finds_what_any_of_the_three_queries_finds(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch, plan: QueryPlan
) -> None:
    indexed("acme/shop", SHOP)
    _break_embedding(monkeypatch)
    assert paths("zebra") == []
    assert paths("zebra", plan=plan)[0] == "shop/stock.py"


@pytest.mark.django_db(transaction=True)  # the model plans in a thread, and writes to the ledger there
@pytest.mark.parametrize(
    ("question", "hypothetical"),
    [
        ("How is an order cancelled?", "def cancel(order): ..."),
        ("Wie wird eine Bestellung rückgängig gemacht?", "def cancel(order): ..."),
        ("Как отменить заказ?", "def cancel(order): ..."),
        ("怎样取消订单？", "def cancel(order): ..."),
        ("كيف يُلغى الطلب؟", "def cancel(order): ..."),
    ],
)
def test_it_finds_in_any_language_what_it_finds_in_english(
    indexed: Indexed, fake_llm: FakeLLM, question: str, hypothetical: str
) -> None:
    indexed("acme/shop", SHOP)
    plan = {
        "english_query": "cancel an order",
        "origin_language_query": question,
        "hypothetical_document": hypothetical,
    }
    fake_llm.replies = [plan, {"ranking": []}]
    result = search(question, principal=OPERATOR)
    assert result.trace.plan.source == "llm"
    assert [hit.display_path for hit in result.hits][:2] == paths("cancel an order", use_llm=False)[:2]


@pytest.mark.django_db(transaction=True)
def test_it_loses_nothing_that_the_own_words_find_when_the_plan_is_wrong(indexed: Indexed, fake_llm: FakeLLM) -> None:
    filler = {f"misc/zebra{i}.py": f"def zebra_stripes_{i}():\n    return 'zebra {i}'\n" for i in range(40)}
    indexed("acme/shop", SHOP | filler)
    fake_llm.replies = [{"english_query": "zebra stripes", "question_class": "behaviour"}, {"ranking": []}]
    result = search("how is an order cancelled", principal=OPERATOR)
    assert result.trace.plan.english_query == "zebra stripes"
    assert "shop/orders.py" in [hit.display_path for hit in result.trace.candidates]
    assert result.hits[0].display_path.startswith("misc/")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("reply", "state"),
    [("great!", "failed"), ("", "failed"), ('{"ranking": [{"id', "failed"), ({"ranking": [{"id": 99}]}, "failed")],
)
def test_it_keeps_every_hit_and_says_so_when_the_ranking_cannot_be_read(
    indexed: Indexed, fake_llm: FakeLLM, reply: Any, state: str
) -> None:
    indexed("acme/shop", SHOP)
    fake_llm.replies = [{"english_query": "cancel_order"}, reply]
    result = search("cancel_order", principal=OPERATOR)
    assert [hit.display_path for hit in result.hits] == paths("cancel_order", use_llm=False)
    assert next(stage.state for stage in result.trace.stages if stage.name == "rerank") == state
    assert any("could not be read" in notice for notice in result.trace.notices)


def _break_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise EmbeddingError("The model is not there.")

    monkeypatch.setattr("indexing.embedding.get_embedder", broken)


def _as_they_are(hits: tuple[object, ...]) -> object:
    from search.reranking import Reranked

    return replace(Reranked(hits=(), dropped=(), state="done", notice=""), hits=tuple(hits))


def test_it_times_every_stage(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    stages = search("order", principal=OPERATOR).trace.stages
    assert all(isinstance(stage, Stage) and stage.milliseconds >= 0 for stage in stages)
    assert [stage.started_ms for stage in stages] == sorted(stage.started_ms for stage in stages)


def test_it_puts_the_code_of_a_pasted_stack_trace_first(indexed: Indexed) -> None:
    indexed("acme/shop", SHOP)
    pasted = (
        "Why?\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/runpy.py", line 1, in run\n'
        '  File "/srv/shop/stock.py", line 3, in take\n    self.items.remove(item)\nValueError: order not in list\n'
    )
    hits = search(pasted, principal=OPERATOR).hits
    assert (hits[0].display_path, hits[0].symbol) == ("shop/stock.py", "Stock")
    assert len({(hit.path, hit.start_byte) for hit in hits}) == len(hits)
    for scope in (Scope(path_filter="docs"), Scope(path_filter="sho"), Scope(languages=("markdown",))):
        assert not any("stock" in path for path in paths(pasted, scope=scope))
