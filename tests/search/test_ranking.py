from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search.ranking import WEIGHTS, Weights, definition_match, exchanged, path_match, priors, rank, saturate
from search.retrieval import Query, retrieve
from search.wording import wording
from tests.search.conftest import Indexed, corpus_of


def order_of(question: str, corpus, *, limit: int = 5) -> list[str]:
    queries = [Query("english", 1.0, wording(question))]
    pool = retrieve(corpus, queries)
    ranked = rank(corpus, pool, queries, limit=limit)
    return [corpus.record(int(pool.chunks[position]))[1].path.decode() for position in ranked.order]


def symbols_of(question: str, corpus, *, limit: int, weights: Weights = WEIGHTS) -> list[str]:
    queries = [Query("english", 1.0, wording(question))]
    pool = retrieve(corpus, queries)
    ranked = rank(corpus, pool, queries, limit=limit, weights=weights)
    return [corpus.record(int(pool.chunks[position]))[1].symbol for position in ranked.order]


def test_it_puts_the_class_before_what_uses_it(indexed: Indexed) -> None:
    corpus = corpus_of(
        indexed(
            "acme/web",
            {
                "client.py": "class Client:\n    def get(self):\n        return 1\n",
                "use.py": "c = Client()\nClient.default = c\nClient.other = Client()\n",
            },
        )
    )
    assert order_of("Client", corpus)[0] == "client.py"


def test_it_puts_the_file_of_that_name_first(indexed: Indexed) -> None:
    body = "def run():\n    return session\n"
    corpus = corpus_of(indexed("acme/web", {"a.py": body, "session.py": body + "\n# session\n", "z.py": body}))
    assert order_of("session handling", corpus)[0] == "session.py"


def test_it_lets_other_files_in_before_later_chunks_of_one_file(indexed: Indexed) -> None:
    many = "\n\n".join(f"def parse_date_{i}(text):\n    return parse(date, text, {i})" for i in range(8))
    corpus = corpus_of(indexed("acme/web", {"dates.py": many, "other.py": "def parse(date):\n    return date\n"}))
    assert order_of("parse a date", corpus)[:2] == ["dates.py", "other.py"]


def test_it_gives_room_to_the_other_chunks_of_a_file_when_the_question_describes_one(indexed: Indexed) -> None:
    many = "\n\n".join(f"def parse_date_{i}(text):\n    return parse(date, text, {i}, 'words')" for i in range(8))
    corpus = corpus_of(indexed("acme/web", {"dates.py": many, "other.py": "def parse(date):\n    return date\n"}))
    described = "Parse the date in a text, with words around, and return its calendar day, month, year, zone and hour"
    assert order_of(described, corpus)[:2] == ["dates.py", "dates.py"]
    assert order_of("parse a date", corpus)[:2] == ["dates.py", "other.py"]


def test_it_lets_the_name_say_which_chunk_of_a_file_is_described(indexed: Indexed) -> None:
    words = "return the number of seconds until the next bus leaves from the stop near the station"
    siblings = "\n\n".join(
        f'def other_{i}(stop):\n    """{words.capitalize()}, {i}."""\n    return {i}' for i in range(4)
    )
    bare = "def seconds_until_next_bus(stop):\n    return stop.table.first - now()"
    corpus = corpus_of(indexed("acme/web", {"buses.py": f"{siblings}\n\n\n{bare}\n"}))
    assert symbols_of(words, corpus, limit=1) == ["seconds_until_next_bus"]
    assert symbols_of(words, corpus, limit=1, weights=replace(WEIGHTS, described_name=0.0)) != [
        "seconds_until_next_bus"
    ]


def test_it_leaves_each_file_its_places_whatever_the_names_of_its_chunks() -> None:
    files = np.array([1, 1, 2, 1])
    assert exchanged(np.array([0, 2, 1]), np.array([2, 3, 1, 0]), files).tolist() == [3, 2, 1]


def test_it_counts_a_later_chunk_as_a_share_of_its_score() -> None:
    def order(later_chunk: float, *, limit: int = 3) -> list[int]:
        scores, files, symbols = np.array([10, 9, 3], np.float32), np.array([1, 1, 2]), np.array([1, 2, 1])
        return saturate(scores, files, symbols, limit=limit, later_chunk=later_chunk, later_part=1).tolist()

    assert order(0.5) == [0, 1, 2]
    assert order(0.1) == [0, 2, 1]
    assert order(0.1, limit=1) == [0]


def test_it_lets_other_definitions_in_before_later_parts_of_one() -> None:
    scores, files, symbols = np.array([10, 9, 6, 5], np.float32), np.array([1, 1, 1, 2]), np.array([7, 7, 8, 7])
    order = saturate(scores, files, symbols, limit=4, later_chunk=1, later_part=0.5).tolist()
    assert order == [0, 2, 3, 1]  # 9 counts 4.5; a definition of that name in another file is another one


@pytest.mark.parametrize(("question", "factor"), [("cancel an order", WEIGHTS.test), ("tests of cancelling", 1.0)])
def test_it_holds_tests_back_unless_they_are_asked_for(indexed: Indexed, question: str, factor: float) -> None:
    corpus = corpus_of(indexed("acme/web", {"tests/test_orders.py": "def test_cancel():\n    assert order\n"}))
    assert priors(corpus, np.array([0]), wording(question), WEIGHTS).tolist() == [pytest.approx(factor)]


def test_it_values_the_exact_name_and_the_qualified_one_most(indexed: Indexed) -> None:
    corpus = corpus_of(
        indexed(
            "acme/web",
            {
                "a.py": "class Response:\n    def cookie(self):\n        return 1\n",
                "b.py": "class Request:\n    def cookie(self):\n        return 2\n",
            },
        )
    )
    chunks = np.arange(corpus.chunk_count)
    values = definition_match(corpus, chunks, wording("Response.cookie"), WEIGHTS)
    by_symbol = {corpus.record(int(row))[1].symbol: value for row, value in zip(chunks, values, strict=True) if value}
    assert max(by_symbol, key=by_symbol.__getitem__).startswith("Response")


def test_it_takes_a_word_with_a_capital_for_the_name_of_exactly_that_type(indexed: Indexed) -> None:
    corpus = corpus_of(
        indexed("acme/web", {"a.py": "class Abort:\n    x = 1\n", "b.py": "def abort():\n    return 1\n"})
    )
    chunks = np.arange(corpus.chunk_count)

    def valued(question: str) -> set[str]:
        values = definition_match(corpus, chunks, wording(question), WEIGHTS)
        return {corpus.record(int(row))[1].symbol for row, value in zip(chunks, values, strict=True) if value}

    assert valued("Abort error and how it is thrown") == {"Abort"}
    assert valued("how is an error made to abort") == set()


def test_it_counts_words_about_asking_for_the_name_of_a_file(indexed: Indexed) -> None:
    corpus = corpus_of(indexed("acme/web", {"impls.py": "x = 1\n", "types.py": "x = 1\n", "use.py": "x = 1\n"}))
    files = np.array([[corpus.path(row) for row in range(3)].index(path) for path in (b"impls.py", b"types.py")])
    impls, types = path_match(corpus, files, wording("standard implementations of Serialize"), WEIGHTS)
    assert impls == pytest.approx(WEIGHTS.path_name)
    assert types == 0


def test_it_ranks_nothing_from_an_empty_pool(indexed: Indexed) -> None:
    assert order_of("zebra", corpus_of(indexed("acme/web", {"a.py": "x = 1\n"}))) == []
