from __future__ import annotations

import pytest

from assistant.extractive import looked, not_found
from assistant.sentences import _SENTENCES, sentences_for
from search.results import QueryPlan, RepositoryChoice, Trace

QUESTIONS = {
    "en": "Where is the Kafka consumer?",
    "de": "Wo ist der Kafka-Consumer und wie wird er gestartet?",
    "fr": "Où est le consommateur Kafka et comment est-il démarré ?",
    "es": "¿Dónde está el consumidor de Kafka y cómo se inicia?",
    "ru": "Где находится потребитель Kafka?",
    "zh": "Kafka 消费者在哪里？",
    "ar": "أين يوجد مستهلك Kafka؟",
}


@pytest.mark.parametrize(("language", "question"), QUESTIONS.items())
def test_it_speaks_the_language_of_the_question(language: str, question: str) -> None:
    assert sentences_for(question) is _SENTENCES[language]


@pytest.mark.parametrize(
    "question", ["セッションはどこに保存されますか", "Gdzie jest konsument Kafka?", "useEffect", ""]
)
def test_it_speaks_english_to_everyone_else(question: str) -> None:
    assert sentences_for(question) is _SENTENCES["en"]


@pytest.mark.parametrize("language", QUESTIONS)
def test_it_says_what_was_not_found_and_where_it_looked(language: str) -> None:
    said = _SENTENCES[language]
    choice = RepositoryChoice(1, "acme/web", False, False, 1.0)
    trace = Trace(QueryPlan("x"), (choice,), 212, (), (), ())
    assert "`Kafka`" in not_found(["Kafka"], said)
    where = looked(trace, minimum_cosine=0.2, said=said)
    assert "212" in where
    assert "{" not in where + said.best.format(best=1, needed=2)
