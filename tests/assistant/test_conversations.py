from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from assistant import conversations
from assistant.conversations import Ending, Event
from assistant.errors import AssistantError, InvalidQuestion
from assistant.models import AnswerEvent, Citation, Conversation, Feedback, Message
from indexing.access import Principal
from indexing.models import Repository
from search.results import Hit, Scope
from tests.factories import COMMIT, make_conversation, make_message, make_repository

pytestmark = pytest.mark.django_db


def _ask(user: User, question: str = "How are sessions kept?", **options: object) -> Message:
    return conversations.start_message(user, question, **({"request_id": uuid.uuid4()} | options))  # type: ignore[arg-type]


def _hit(repository: Repository, number: int = 1, **changes: object) -> Hit:
    values: dict[str, object] = {
        "repository_id": repository.pk,
        "repository": repository.name,
        "commit": COMMIT,
        "path": f"src/f{number}.py".encode(),
        "blob_id": "b" * 40,
        "encoding": "utf-8",
        "language": "python",
        "kind": "function",
        "symbol": f"f{number}",
        "start_byte": 10,
        "end_byte": 20,
        "start_line": 3,
        "end_line": 4,
        "score": 1.0,
    }
    return Hit(**(values | changes))  # type: ignore[arg-type]


def _running(message: Message) -> Message:
    claimed = conversations.claim(message.pk)
    assert claimed is not None
    return claimed


def test_it_starts_a_conversation_titled_after_its_first_question(user: User) -> None:
    message = _ask(user, "  Where does Flask\n sign the session cookie? ", scope=Scope(repository_ids=(3,), path="src"))
    assert message.conversation.title == "Where does Flask sign the session cookie?"
    assert message.question == "Where does Flask\n sign the session cookie?"
    assert conversations.scope_of(message) == Scope(repository_ids=(3,), path="src")
    assert (message.state, message.position, message.attempt) == ("queued", 0, 1)


def test_it_shortens_titles_at_a_word() -> None:
    title = conversations.shorten_title("where " * 40)
    assert len(title) <= 80
    assert title.endswith("where…")
    assert len(conversations.shorten_title("x" * 500)) == 80


def test_it_stores_a_double_click_once(user: User) -> None:
    request_id = uuid.uuid4()
    first, second = (_ask(user, request_id=request_id) for _ in range(2))
    assert first.pk == second.pk
    assert (Message.objects.count(), Conversation.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_it_stores_simultaneous_questions_once_each() -> None:
    owner = User.objects.create_user("user")
    conversation = make_conversation(owner)
    requests = [uuid.uuid4(), uuid.uuid4()] * 3

    def post(request_id: uuid.UUID) -> None:
        _ask(owner, request_id=request_id, conversation=conversation)
        connection.close()

    threads = [threading.Thread(target=post, args=[request_id]) for request_id in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(conversation.messages.values_list("position", flat=True)) == [0, 1]


@pytest.mark.parametrize("question", ["", " \n", "x" * 20_001])
def test_it_refuses_a_question_and_keeps_what_was_typed(user: User, question: str) -> None:
    with pytest.raises(InvalidQuestion) as refused:
        _ask(user, question)
    assert refused.value.text == question
    assert not Conversation.objects.exists()


def test_it_stores_text_that_databases_refuse(user: User) -> None:
    assert _ask(user, "a\0b \ud800").question == "a\ufffdb ?"


def test_it_does_not_hand_out_another_persons_message(user: User, other_user: User) -> None:
    request_id = _ask(user).request_id
    with pytest.raises(AssistantError):
        _ask(other_user, request_id=request_id)


def test_it_shows_a_person_only_their_own(user: User, other_user: User, staff: User) -> None:
    message = _ask(user)
    assert list(conversations.visible_to(user)) == [message.conversation]
    assert list(conversations.messages_visible_to(user)) == [message]
    for stranger in (other_user, staff, AnonymousUser()):
        assert not conversations.visible_to(stranger).exists()
        assert not conversations.messages_visible_to(stranger).exists()


def test_it_is_claimed_by_one_process(user: User) -> None:
    message = _ask(user)
    assert conversations.claim(message.pk) is not None
    assert conversations.claim(message.pk) is None


def test_it_stores_evidence_as_coordinates_and_replaces_a_first_ranking(user: User) -> None:
    repository, message = make_repository(), _running(_ask(user))
    conversations.store_evidence(message.pk, 1, [_hit(repository, 1), _hit(repository, 2)])
    conversations.store_evidence(message.pk, 1, [_hit(repository, 3)])
    row = Citation.objects.get()
    assert (row.number, bytes(row.path), row.start_byte, row.end_byte) == (1, b"src/f3.py", 10, 20)


def test_it_finishes_once(user: User) -> None:
    repository, message = make_repository(), _running(_ask(user))
    conversations.store_evidence(message.pk, 1, [_hit(repository, 1), _hit(repository, 2)])
    ending = Ending(
        Message.State.DONE, [Event(1, "done", {})], answer="A [1]", answered_by="m", cited=[1], verified=[1, 2]
    )
    assert conversations.finish(message.pk, 1, ending)
    assert not conversations.finish(message.pk, 1, ending)
    message.refresh_from_db()
    assert (message.state, message.answer, message.leased_until) == ("done", "A [1]", None)
    assert list(Citation.objects.values_list("cited", "verified")) == [(True, True), (False, True)]


def test_it_writes_nothing_for_an_attempt_that_is_over(user: User) -> None:
    message = _running(_ask(user))
    conversations.finish(message.pk, 1, Ending(Message.State.STOPPED, [Event(1, "stopped", {})]))
    conversations.retry(message)
    _running(message)
    assert not conversations.append_events(message.pk, 1, [Event(2, "notice", {"text": "late"})])
    conversations.store_evidence(message.pk, 1, [_hit(make_repository())])
    assert AnswerEvent.objects.count() == 1
    assert not Citation.objects.exists()


def test_it_resumes_in_the_middle_of_a_stored_text(user: User) -> None:
    message = _running(_ask(user))
    events = [
        Event(1, "stage", {"name": "plan"}),
        Event(6, "text", {"text": "Hello"}),
        Event(7, "notice", {"text": "n"}),
    ]
    conversations.append_events(message.pk, 1, events)
    assert [event.data for event in conversations.events_after(message.pk, 1, 3)] == [{"text": "llo"}, {"text": "n"}]
    assert conversations.events_after(message.pk, 1, 0) == events
    assert conversations.events_after(message.pk, 1, 6) == events[2:]


def test_it_retries_a_finished_message_but_not_a_running_one(user: User) -> None:
    message = _running(_ask(user))
    assert conversations.retry(message).attempt == 1
    conversations.finish(message.pk, 1, Ending(Message.State.FAILED, [Event(1, "error", {})], error="no"))
    retried = conversations.retry(message)
    assert (retried.attempt, retried.state, retried.error) == (2, "queued", "")
    assert conversations.events_after(message.pk, 2, 0) == []


def test_it_flags_a_stop_only_while_something_runs(user: User) -> None:
    running, finished = _running(_ask(user)), make_message(state=Message.State.DONE)
    for message in (running, finished):
        conversations.request_stop(message)
    assert conversations.stop_requested([running.pk, finished.pk]) == {running.pk}


def _orphan(user: User, text: str, **changes: object) -> Message:
    message = _running(_ask(user))
    if text:
        conversations.append_events(message.pk, 1, [Event(len(text), "text", {"text": text})])
    expired = timezone.now() - timedelta(seconds=1)
    Message.objects.filter(pk=message.pk).update(leased_until=expired, **changes)
    return message


def test_it_ends_orphans_and_keeps_their_text(user: User) -> None:
    message, alive = _orphan(user, "Half an answer"), _running(_ask(user))
    assert conversations.end_orphans() == 1
    message.refresh_from_db()
    alive.refresh_from_db()
    sentence = "The server restarted while this answer was being written. The text above is saved."
    assert (message.state, message.answer, message.error) == ("error", "Half an answer", sentence)
    assert conversations.events_after(message.pk, 1, 14) == [Event(15, "error", {"text": sentence})]
    assert alive.state == "running"
    assert conversations.retry(message).attempt == 2


def _stage(sequence: int, state: str) -> Event:
    note = "openai/stub" if state == "now" else ""
    return Event(sequence, "stage", {"name": "write", "state": state, "milliseconds": 0, "note": note})


@pytest.mark.parametrize(
    ("states", "writer"), [(["now"], "openai/stub"), (["now", "done"], "openai/stub"), (["now", "failed"], "")]
)
def test_it_lets_an_orphan_go_on_that_a_model_was_writing(user: User, states: list[str], writer: str) -> None:
    message = _orphan(user, "Half")
    stages = [_stage(number, state) for number, state in enumerate(states, start=5)]
    AnswerEvent.objects.bulk_create(
        AnswerEvent(message=message, sequence=event.sequence, name=event.name, data=event.data) for event in stages
    )
    conversations.end_orphans()
    message.refresh_from_db()
    assert (message.answer, message.answered_by, message.continuable) == ("Half", writer, bool(writer))


def test_it_keeps_text_passages_and_trace_when_a_continued_answer_dies_before_its_first_step(
    user: User, settings: Settings
) -> None:
    settings.LLM_MODEL = "openai/stub"
    repository, message = make_repository(), _running(_ask(user))
    conversations.store_evidence(message.pk, 1, [_hit(repository, 1), _hit(repository, 2)])
    ending = Ending(Message.State.STOPPED, [Event(1, "stopped", {})], "Half [2]", "openai/stub", trace={"stages": []})
    conversations.finish(message.pk, 1, replace(ending, cited=[2], verified=[1, 2]))
    message.refresh_from_db()
    conversations.go_on(message)
    Message.objects.filter(pk=message.pk).update(leased_until=timezone.now() - timedelta(seconds=1))
    conversations.end_orphans()
    message.refresh_from_db()
    assert (message.attempt, message.answer, message.trace, message.continuable) == (
        2,
        "Half [2]",
        {"stages": []},
        True,
    )
    kept = [(row.number, row.cited, row.verified) for row in message.citations.filter(attempt=2)]
    assert kept == [(1, False, True), (2, True, True)]
    assert [hit.start_byte for hit in conversations.earlier_hits(message)] == [
        row.start_byte for row in message.citations.filter(attempt=1)
    ]


def test_it_ends_an_orphan_without_text_and_one_that_was_to_stop(user: User) -> None:
    empty, stopped = _orphan(user, ""), _orphan(user, "Half", stop_requested=True)
    conversations.end_orphans()
    empty.refresh_from_db()
    stopped.refresh_from_db()
    assert empty.error == "The server restarted while this answer was being written."
    assert (stopped.state, stopped.error) == ("stopped", "")


def test_it_lets_a_reader_of_a_finished_or_deleted_message_go(user: User) -> None:
    message = _running(_ask(user))
    assert conversations.ending_event(message.pk, 1, 5) == []
    conversations.finish(message.pk, 1, Ending(Message.State.DONE, [Event(5, "done", {})]))
    assert conversations.ending_event(message.pk, 1, 5) == [Event(5, "done", {})]
    conversations.delete(message.conversation)
    assert conversations.ending_event(message.pk, 1, 5)[0].name == "error"


def _answered(user: User, *repositories: Repository, **ending: object) -> Message:
    message = _running(_ask(user))
    conversations.store_evidence(message.pk, 1, [_hit(repository) for repository in repositories])
    values = {"state": Message.State.DONE, "events": [Event(1, "done", {})], "verified": [1, 2], "answer": "See [1]."}
    conversations.finish(message.pk, 1, Ending(**(values | ending)))  # type: ignore[arg-type]
    message.refresh_from_db()
    return message


def test_it_tells_the_state_of_each_passage(user: User) -> None:
    repository, principal = make_repository("acme/web"), Principal.of_user(user)
    done = _answered(user, repository, repository, verified=[1])
    running = _running(_ask(user))
    conversations.store_evidence(running.pk, 1, [_hit(repository)])
    running.refresh_from_db()
    states = [(item.state, item.linkable) for item in conversations.evidence(done, principal)]
    assert states == [("ok", True), ("broken", False)]
    assert [item.state for item in conversations.evidence(running, principal)] == ["pending"]
    repository.delete()
    removed = conversations.evidence(done, principal)[0]
    assert (removed.state, removed.label, removed.linkable) == ("removed", "f1.py:3–4", False)
    assert removed.title.startswith("acme/web src/f1.py")


def test_it_hides_passages_from_who_lost_access(user: User, other_user: User) -> None:
    repository = make_repository("acme/secret", visibility="private", owner=other_user)
    repository.members.add(user)
    message = _answered(user, repository)
    assert conversations.evidence(message, Principal.of_user(user))[0].state == "ok"
    repository.members.remove(user)
    hidden = conversations.evidence(message, Principal.of_user(user))[0]
    assert (hidden.state, hidden.citation, hidden.label) == ("hidden", None, "[1]")
    assert "secret" not in hidden.title
    follow_up = _ask(user, conversation=message.conversation)
    assert conversations.history(follow_up, Principal.of_user(user)) == ((message.question, ""),)


def test_it_reads_the_evidence_of_many_messages_with_two_queries(
    user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    messages = [_answered(user, make_repository()) for _ in range(5)]
    with django_assert_num_queries(2):
        found = conversations.evidence_of(messages, Principal.of_user(user))
    assert [len(found[message.pk]) for message in messages] == [1] * 5


def test_it_shows_only_the_readable_part_of_a_trace(user: User, other_user: User) -> None:
    mine, hidden = make_repository("acme/web"), make_repository("acme/x", visibility="private", owner=other_user)
    trace = {
        "repositories": [{"repository_id": mine.pk}, {"repository_id": hidden.pk}],
        "candidates": [{"repository_id": hidden.pk}],
        "dropped": [{"hit": {"repository_id": hidden.pk}}],
        "stages": [{"name": "plan", "note": "acme/x"}],
        "notices": ["acme/x is half indexed"],
    }
    message = _answered(user, mine, trace=trace)
    seen = conversations.visible_trace(message, Principal.of_user(user))
    assert seen["repositories"] == [{"repository_id": mine.pk}]
    assert (seen["candidates"], seen["dropped"], seen["notices"]) == ([], [], [])
    assert "acme/x" not in str(seen)
    assert conversations.visible_trace(message, Principal.of_user(other_user)) == trace


def test_it_hands_on_the_earlier_turns_in_order(user: User) -> None:
    first = _answered(user, make_repository())
    second = _ask(user, "and in Redis?", conversation=first.conversation)
    assert conversations.history(second, Principal.of_user(user)) == (("How are sessions kept?", "See [1]."),)
    assert conversations.history(first, Principal.of_user(user)) == ()


def test_it_renames_pins_and_deletes(user: User) -> None:
    conversation = _ask(user).conversation
    conversations.rename(conversation, "  Sessions \n again ")
    conversations.rename(conversation, "  ")
    conversations.set_pinned(conversation, True)
    conversation.refresh_from_db()
    assert (conversation.title, conversation.pinned) == ("Sessions again", True)
    conversations.delete(conversation)
    assert not Message.objects.exists()


def test_it_keeps_one_opinion_a_person(user: User) -> None:
    message = _ask(user)
    conversations.save_feedback(message, user, helpful=False, reason="wrong_lines", comment=" no ")
    conversations.save_feedback(message, user, helpful=True, reason="wrong_lines")
    assert list(Feedback.objects.values_list("helpful", "reason", "comment")) == [(True, "", "")]
    assert conversations.save_feedback(message, user, helpful=False, reason="<made up>").reason == ""
