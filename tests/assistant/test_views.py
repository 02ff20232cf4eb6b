"""The pages of the chat: asking, following, rating, opening code; and what other people must not see of it."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from assistant import answering, conversations
from assistant.extractive import RANKED_ONLY
from assistant.models import Citation, Conversation, Feedback, Message
from indexing import registering
from indexing.links import blob_url
from indexing.models import Index, Repository
from search.results import Hit
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import make_conversation, make_index, make_message, make_repository

HTMX = {"HX-Request": "true"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[uuid.UUID]:
    """The answers that were started; none is written."""
    calls: list[uuid.UUID] = []
    monkeypatch.setattr(answering, "start_answer", calls.append)
    return calls


@pytest.fixture
def repository(tmp_path: Path, user: User) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS}, owner=user, visibility="private")


@pytest.fixture
def hit(repository: Repository) -> Hit:
    return hit_for(repository, "src/sessions.py", 'def sign(value: str) -> str:\n    """Sign the cookie."""')


@pytest.fixture
def answered(user: User, hit: Hit) -> Message:
    """A finished answer that cites one real passage."""
    message = conversations.start_message(user, "Where is it signed?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit])
    ending = conversations.Ending(
        Message.State.DONE, [], answer="In `sign` [1].", answered_by="llama3.1", cited=[1], verified=[1]
    )
    conversations.finish(message.pk, 1, ending)
    message.refresh_from_db()
    return message


def question(**changes: str) -> dict[str, str]:
    return {"request_id": str(uuid.uuid4()), "question": "How are sessions signed?", "mode": "explain"} | changes


# --- asking


def test_it_starts_a_conversation_and_an_answer(user_client: Client, started: list[uuid.UUID]) -> None:
    response = user_client.post("/ask/", question())
    message = Message.objects.get()
    assert response.url == f"/c/{message.conversation_id}/#m-{message.pk}"
    assert started == [message.pk]


def test_it_stores_one_message_for_a_double_click(user_client: Client, started: list[uuid.UUID]) -> None:
    data = question()
    first, second = user_client.post("/ask/", data), user_client.post("/ask/", data)
    assert first.url == second.url
    assert Message.objects.count() == 1


@pytest.mark.services
@pytest.mark.parametrize(("address", "status"), [("/c/?q=a%00b", 200), ("/s/a%00b/", 404), ("/search/?q=a%00b", 200)])
def test_it_takes_characters_that_postgresql_refuses(user_client: Client, address: str, status: int) -> None:
    assert user_client.get(address).status_code == status


def test_it_takes_no_request_id_that_is_made_from_a_name(user_client: Client, started: list[Any]) -> None:
    """Those of the API and of Slack are: whoever guesses one must not be able to take it first."""
    guessed = uuid.uuid5(uuid.NAMESPACE_URL, "token:1:nightly")
    response = user_client.post("/ask/", question(request_id=str(guessed)))
    assert (response.status_code, started) == (422, [])
    assert not Message.objects.exists()


def test_it_appends_a_follow_up_and_renews_the_request_id(user_client: Client, user: User, started: list[Any]) -> None:
    row = make_conversation(user)
    data = question()
    page = user_client.post(f"/c/{row.pk}/ask/", data, headers=HTMX).content.decode()
    assert "How are sessions signed?" in page
    assert f'data-stream="/m/{started[0]}/events/"' in page
    assert 'hx-swap-oob="true"' in page
    assert data["request_id"] not in page


def test_it_keeps_the_text_of_a_question_that_is_too_long(user_client: Client, started: list[Any]) -> None:
    response = user_client.post("/ask/", question(question="x" * 100_000))
    assert response.status_code == 422
    assert "x" * 100_000 in response.content.decode()
    assert "100,000 characters" in response.content.decode()
    assert started == []


def test_it_shows_a_refusal_at_the_composer(user_client: Client, user: User, started: list[Any]) -> None:
    row = make_conversation(user)
    response = user_client.post(f"/c/{row.pk}/ask/", question(question="  "), headers=HTMX)
    assert (response.status_code, response["HX-Retarget"]) == (422, "#composer-error")
    assert "Type a question first." in response.content.decode()


def test_it_reads_the_scope_from_chips_and_words(user_client: Client, started: list[Any]) -> None:
    flask = make_repository("pallets/flask")
    user_client.post("/ask/", question(question="@pallets/flask where? path:src/flask", scope="lang:python"))
    message = Message.objects.get()
    assert message.question == "where?"
    scope = conversations.scope_of(message)
    assert (scope.repository_ids, scope.path, scope.languages) == ((flask.pk,), "src/flask", ("python",))


def test_it_leaves_a_name_that_may_not_be_read_in_the_question(
    other_client: Client, repository: Repository, started: list[Any]
) -> None:
    other_client.post("/ask/", question(question=f"@{repository.name} where?"))
    assert Message.objects.get().question == f"@{repository.name} where?"
    assert conversations.scope_of(Message.objects.get()).repository_ids == ()


def test_it_asks_only_by_post(user_client: Client) -> None:
    assert user_client.get("/ask/").status_code == 405


# --- an answer


def test_it_shows_an_answer_with_steps_evidence_and_citations(user_client: Client, answered: Message) -> None:
    page = user_client.get(f"/c/{answered.conversation_id}/").content.decode()
    assert '<span class="mono cut">sessions.py<span class="dim">:4–5</span></span>' in page
    assert re.search(
        r'<a class="citation"[^>]* href="/r/\d+/acme-web/blob/[0-9a-f]{40}\?path=src/sessions.py&amp;', page
    )
    assert "1 of 1 citation verified" in page


def test_it_stops_an_answer(user_client: Client, user: User) -> None:
    message = make_message(make_conversation(user), state=Message.State.RUNNING)
    assert user_client.post(f"/m/{message.pk}/stop/", headers=HTMX).status_code == 204
    message.refresh_from_db()
    assert message.stop_requested


def test_it_retries_an_answer_in_place(user_client: Client, answered: Message, started: list[uuid.UUID]) -> None:
    page = user_client.post(f"/m/{answered.pk}/retry/", headers=HTMX).content.decode()
    assert started == [answered.pk]
    assert 'data-state="streaming"' in page
    assert Message.objects.get().attempt == 2


def test_it_edits_the_last_question_and_asks_again(
    user_client: Client, answered: Message, started: list[uuid.UUID]
) -> None:
    user_client.post(f"/m/{answered.pk}/edit/", {"question": "Where is it unsigned?"})
    answered.refresh_from_db()
    assert (answered.question, answered.attempt, started) == ("Where is it unsigned?", 2, [answered.pk])
    assert answered.conversation.title == "Where is it unsigned?"


@pytest.mark.parametrize("typed", ["", "x" * 30_000])
def test_it_keeps_an_edited_question_that_is_refused(
    user_client: Client, answered: Message, started: list[uuid.UUID], typed: str
) -> None:
    response = user_client.post(f"/m/{answered.pk}/edit/", {"question": typed})
    assert response.status_code == 422
    assert typed in response.content.decode()
    assert started == []


def test_it_edits_only_the_last_question(user_client: Client, answered: Message, started: list[uuid.UUID]) -> None:
    make_message(answered.conversation, position=1, state=Message.State.DONE)
    response = user_client.post(f"/m/{answered.pk}/edit/", {"question": "Another?"})
    assert (response.status_code, started) == (422, [])


def test_it_offers_to_continue_what_was_cut_off(
    user_client: Client, answered: Message, started: list[uuid.UUID]
) -> None:
    Message.objects.update(finish_reason="length")
    page = user_client.get(f"/c/{answered.conversation_id}/").content.decode()
    assert f'action="/m/{answered.pk}/continue/"' in page
    user_client.post(f"/m/{answered.pk}/continue/", headers=HTMX)
    answered.refresh_from_db()
    assert (answered.attempt, answered.written, started) == (2, "In `sign` [1].", [answered.pk])
    assert [hit.path for hit in conversations.earlier_hits(answered)] == [b"src/sessions.py"]


def test_it_begins_anew_when_there_is_nothing_to_continue(
    user_client: Client, answered: Message, started: list[uuid.UUID]
) -> None:
    user_client.post(f"/m/{answered.pk}/continue/", headers=HTMX)
    answered.refresh_from_db()
    assert (answered.attempt, answered.written) == (2, "")


def test_it_says_why_an_answer_failed_and_offers_a_retry(user_client: Client, user: User) -> None:
    message = make_message(make_conversation(user), state=Message.State.FAILED, error="The model did not answer.")
    page = user_client.get(f"/c/{message.conversation_id}/").content.decode()
    assert "The model did not answer." in page
    assert f'action="/m/{message.pk}/retry/"' in page


def test_it_takes_one_opinion_a_person_and_asks_for_the_reason(user_client: Client, answered: Message) -> None:
    url = f"/m/{answered.pk}/feedback/"
    user_client.post(url, {"helpful": "1"}, headers=HTMX)
    page = user_client.post(url, {"helpful": "0", "reason": "wrong_lines"}, headers=HTMX).content.decode()
    opinion = Feedback.objects.get()
    assert (opinion.helpful, opinion.reason) == (False, "wrong_lines")
    assert 'value="wrong_lines" aria-pressed="true"' in page


# --- code and trace


def passage_url(hit: Hit, message: Message | None = None) -> str:
    return blob_url(
        hit.repository_id,
        "acme-web",
        hit.commit,
        hit.path,
        byte_range=(hit.start_byte, hit.end_byte),
        message_id=message.pk if message else None,
    )


def test_it_opens_a_citation_with_its_exact_lines_marked(user_client: Client, answered: Message, hit: Hit) -> None:
    page = user_client.get(passage_url(hit, answered), headers=HTMX).content.decode()
    assert re.findall(r'<li id="L(\d+)" class="hit">', page) == ["4", "5"]
    assert '<span class="from">' in page
    assert '<span class="flag flag--on" aria-label="passage 1">1</span>' in page
    assert "<html" not in page


def test_it_keeps_the_conversation_beside_code_that_is_loaded_anew(
    user_client: Client, answered: Message, hit: Hit
) -> None:
    page = user_client.get(passage_url(hit, answered)).content.decode()
    assert 'data-pane="open"' in page
    assert 'aria-label="Your question"' in page
    alone = user_client.get(passage_url(hit)).content.decode()
    assert 'aria-label="Your question"' not in alone
    assert 'class="hit"' in alone


def test_it_opens_paths_that_are_not_utf8(user_client: Client, user: User, tmp_path: Path) -> None:
    repository = real_repository(tmp_path, {"plain.py": "x = 1\n"}, owner=user)
    assert repository.current_index is not None
    commit = repository.current_index.commit
    assert user_client.get(f"/r/{repository.pk}/x/blob/{commit}?path=plain.py").status_code == 200
    for query in ("path=caf%E9.py", "path=", "", "path=../plain.py", "path=/etc/passwd"):
        assert user_client.get(f"/r/{repository.pk}/x/blob/{commit}?{query}").status_code == 404


def test_it_gives_the_same_404_for_unknown_and_forbidden_code(
    other_client: Client, answered: Message, hit: Hit
) -> None:
    forbidden = other_client.get(passage_url(hit, answered))
    unknown = other_client.get(passage_url(hit).replace(f"/r/{hit.repository_id}/", "/r/99999/"))
    assert forbidden.status_code == unknown.status_code == 404
    assert forbidden.content == unknown.content


def test_it_shows_how_an_answer_came_about(user_client: Client, answered: Message, hit: Hit) -> None:
    answered.trace = stored_trace(hit)
    answered.save(update_fields=["trace"])
    page = user_client.get(f"/m/{answered.pk}/trace/", headers=HTMX).content.decode()
    assert "how are sessions signed" in page
    assert "1 of 3 repositories" in page
    assert "named in the question" in page
    assert "Dropped: about something else" in page
    assert 'class="llm"' in page
    assert json.loads(user_client.get(f"/m/{answered.pk}/trace.json").content)["readable_repositories"] == 3


def stored_trace(hit: Hit) -> dict[str, Any]:
    other = hit.to_json() | {"start_byte": 0, "end_byte": 5, "legs": {"terms.code_stems": 2.0}}
    kept = hit.to_json() | {"legs": {"vectors.code": 0.7, "terms.code_stems": 4.0}}
    choice = {"repository_id": hit.repository_id, "name": "acme/web", "golden": True, "pinned": True, "score": 0.9}
    stage = {"name": "plan", "milliseconds": 50.0, "started_ms": 0.0, "llm": True, "state": "done", "note": ""}
    plan = {"english_query": "how are sessions signed", "origin_language_query": "", "hypothetical_document": ""}
    return {
        "plan": plan | {"question_class": "behaviour", "source": "llm", "notice": ""},
        "repositories": [choice | {"reasons": ["named in the question"]}],
        "readable_repositories": 3,
        "candidates": [kept, other],
        "dropped": [{"hit": other, "reason": "about something else"}],
        "stages": [stage],
        "notices": [],
    }


# --- conversations


def test_it_renames_pins_and_deletes(user_client: Client, user: User) -> None:
    row = make_conversation(user)
    user_client.post(f"/c/{row.pk}/rename/", {"title": "Sessions"})
    user_client.post(f"/c/{row.pk}/pin/", {"pinned": "1"})
    row.refresh_from_db()
    assert (row.title, row.pinned) == ("Sessions", True)
    assert user_client.post(f"/c/{row.pk}/delete/").url == "/"
    assert not Conversation.objects.exists()


def test_it_finds_conversations_by_title(user_client: Client, user: User) -> None:
    make_conversation(user, title="Flask sessions")
    make_conversation(user, title="Cobra flags")
    page = user_client.get("/c/?q=flask", headers=HTMX).content.decode()
    assert "Flask sessions" in page
    assert "Cobra flags" not in page


def test_it_exports_a_conversation_with_its_places(user_client: Client, answered: Message) -> None:
    text = user_client.get(f"/c/{answered.conversation_id}/export.md").content.decode()
    assert "## Where is it signed?" in text
    assert "- [1] acme/web src/sessions.py, lines 4–5" in text


def test_it_exports_a_conversation_as_json(user_client: Client, answered: Message) -> None:
    data = user_client.get(f"/c/{answered.conversation_id}/export.json").json()
    (message,) = data["messages"]
    assert (message["question"], message["answer"]) == ("Where is it signed?", "In `sign` [1].")
    assert (message["citations"][0]["path"], message["citations"][0]["start_line"]) == ("src/sessions.py", 4)
    Repository.objects.update(owner=None)
    (message,) = user_client.get(f"/c/{answered.conversation_id}/export.json").json()["messages"]
    assert (message["answer"], message["citations"]) == (None, [])


def test_it_shares_a_conversation_with_people_who_may_read_its_code(
    user_client: Client, other_client: Client, other_user: User, answered: Message, repository: Repository
) -> None:
    address = f"/c/{answered.conversation_id}/share/"
    user_client.post(address, {"shared": "1"})
    link = user_client.get(f"/c/{answered.conversation_id}/").context["share_url"]
    repository.members.add(other_user)
    page = other_client.get(link).content.decode()
    assert "Where is it signed?" in page
    assert "sessions.py" in page
    assert "&amp;m=" not in page
    user_client.post(address, {"shared": "0"})
    assert other_client.get(link).status_code == 404


def test_it_withholds_shared_answers_from_people_who_may_not_read_their_code(
    user_client: Client, other_client: Client, client: Client, answered: Message, repository: Repository
) -> None:
    user_client.post(f"/c/{answered.conversation_id}/share/", {"shared": "1"})
    link = user_client.get(f"/c/{answered.conversation_id}/").context["share_url"]
    page = other_client.get(link).content.decode()
    assert "that you cannot read" in page
    for secret in ("In <code>sign", "sessions.py", repository.name):
        assert secret not in page
    assert client.get(link).url.startswith("/sign-in/")
    assert other_client.get("/s/guessed/").status_code == 404


def test_it_keeps_a_shared_answer_withheld_when_its_private_repository_is_removed(
    user_client: Client, other_client: Client, answered: Message, repository: Repository
) -> None:
    user_client.post(f"/c/{answered.conversation_id}/share/", {"shared": "1"})
    link = user_client.get(f"/c/{answered.conversation_id}/").context["share_url"]
    registering.remove(repository)
    page = other_client.get(link).content.decode()
    for secret in ("In <code>sign", "sessions.py", repository.name):
        assert secret not in page
    assert "In <code>sign" in user_client.get(f"/c/{answered.conversation_id}/").content.decode()


def test_it_keeps_names_of_other_repositories_out_of_shared_conversations(
    user_client: Client, other_client: Client, answered: Message
) -> None:
    notices = ["acme/vault could not be searched.", "Looked in 2 of 9 repositories.", f"401. {RANKED_ONLY}"]
    Message.objects.update(notices=notices)
    Citation.objects.all().delete()
    user_client.post(f"/c/{answered.conversation_id}/share/", {"shared": "1"})
    page = other_client.get(user_client.get(f"/c/{answered.conversation_id}/").context["share_url"]).content.decode()
    assert RANKED_ONLY in page
    for secret in ("acme/vault", "of 9 repositories", "401"):
        assert secret not in page


def test_it_hides_a_conversation_from_everyone_else(
    other_client: Client, staff_client: Client, answered: Message
) -> None:
    row, message = answered.conversation_id, answered.pk
    gets = [
        f"/c/{row}/",
        f"/c/{row}/export.md",
        f"/c/{row}/export.json",
        *(f"/m/{message}/{end}" for end in ("", "events/", "trace/", "trace.json")),
    ]
    posts = [f"/c/{row}/{end}/" for end in ("ask", "rename", "pin", "delete", "share")]
    posts += [f"/m/{message}/{end}/" for end in ("stop", "retry", "feedback", "continue", "edit")]
    for client in (other_client, staff_client):
        assert {client.get(url).status_code for url in gets} == {404}
        assert {client.post(url, question()).status_code for url in posts} == {404}
    assert "Where is it signed?" not in other_client.get("/").content.decode()


def test_it_withholds_an_answer_whose_repository_is_no_longer_readable(
    user_client: Client, answered: Message, repository: Repository
) -> None:
    Repository.objects.update(owner=None)
    page = user_client.get(f"/c/{answered.conversation_id}/").content.decode()
    assert "that you cannot read" in page
    for secret in ("In <code>sign", "sessions.py", repository.name):
        assert secret not in page


# --- home, sidebar, completion


def test_it_counts_only_repositories_that_can_answer(user_client: Client) -> None:
    make_index(make_repository("acme/ready"), current=True)
    make_index(make_repository("acme/failed"), status=Index.Status.FAILED)
    assert "<h2>Ask about acme/ready</h2>" in user_client.get("/").content.decode()


def test_it_invites_to_add_the_first_repository(user_client: Client) -> None:
    assert "Add the first repository" in user_client.get("/").content.decode()


def test_it_shows_progress_while_something_is_indexed(user_client: Client) -> None:
    make_index(make_repository("pallets/flask"), status=Index.Status.BUILDING, files_done=90, files_known=236)
    page = user_client.get("/").content.decode()
    assert "Indexing pallets/flask" in page
    assert 'hx-get="/home/progress/"' in page
    Index.objects.update(status=Index.Status.READY)
    assert "hx-trigger" not in user_client.get("/home/progress/", headers=HTMX).content.decode()


def test_it_completes_only_repositories_that_may_be_read(
    user_client: Client, other_client: Client, repository: Repository
) -> None:
    make_repository("pallets/flask")
    assert "@acme/web" in user_client.get("/complete/?typed=@acm").content.decode()
    assert "@acme/web" not in other_client.get("/complete/?typed=@acm").content.decode()
    assert "@pallets/flask" in other_client.get("/complete/?typed=@fl").content.decode()


@pytest.mark.parametrize(("cookie", "attribute"), [("dark", 'data-theme="dark"'), ('"><script>', "<html lang")])
def test_it_remembers_the_theme_and_nothing_else(user_client: Client, cookie: str, attribute: str) -> None:
    user_client.cookies["theme"] = cookie
    page = user_client.get("/").content.decode()
    assert attribute in page
    assert '"><script>' not in page


def test_it_groups_conversations_and_puts_pinned_ones_first(user_client: Client, user: User) -> None:
    make_conversation(user, title="new")
    make_conversation(user, title="kept", pinned=True)
    groups = user_client.get("/").context["sidebar_conversations"]
    assert [(heading, [row.title for row in rows]) for heading, rows in groups] == [
        ("Pinned", ["kept"]),
        ("Today", ["new"]),
    ]


# --- queries, doors and headers


def test_it_needs_as_many_queries_for_a_long_conversation_as_for_a_short_one(
    user_client: Client, user: User, hit: Hit, django_assert_num_queries: Any
) -> None:
    row = make_conversation(user)
    for position in range(5):
        make_message(row, position=position, state=Message.State.DONE, answer="Text.", answered_by="m")
    with django_assert_num_queries(11):
        user_client.get(f"/c/{row.pk}/")


def test_it_needs_few_queries_for_the_start_page(user_client: Client, django_assert_num_queries: Any) -> None:
    for _ in range(4):
        make_index(make_repository(), current=True)
    with django_assert_num_queries(9):
        user_client.get("/")


def test_it_lets_nobody_in_without_signing_in(client: Client, db: None) -> None:
    for name in ("home", "repositories", "search", "conversations", "complete", "dock"):
        assert client.get(reverse(name)).url.startswith("/sign-in/")


def test_it_signs_in_with_a_password_and_out(client: Client, user: User) -> None:
    user.set_password("a good password")
    user.save()
    assert client.post("/sign-in/", {"username": "user", "password": "wrong"}).status_code == 200
    assert client.post("/sign-in/", {"username": "user", "password": "a good password"}).url == "/"
    assert client.post("/sign-out/").url == "/sign-in/"


PAGES = ("home", "repositories", "search", "sign_in")


@pytest.mark.parametrize("name", PAGES)
def test_it_has_a_strict_policy_and_no_inline_code(user_client: Client, client: Client, name: str) -> None:
    response = (client if name == "sign_in" else user_client).get(reverse(name))
    assert "default-src 'none'" in response["Content-Security-Policy"]
    assert "unsafe" not in response["Content-Security-Policy"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", response.content.decode())


def test_it_shows_error_pages_in_the_design(user_client: Client) -> None:
    response = user_client.get("/nothing/here")
    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()
    assert "app.css" in response.content.decode()


def test_it_refuses_a_form_that_another_person_sent(
    user_client: Client, other_client: Client, started: list[uuid.UUID]
) -> None:
    data = question()
    user_client.post("/ask/", data)
    response = other_client.post("/ask/", data, headers=HTMX)
    assert response.status_code == 422
    assert "was sent already" in response.content.decode()


def test_it_streams_to_readers_only(user_client: Client, answered: Message) -> None:
    assert user_client.post(f"/m/{answered.pk}/events/").status_code == 405


def test_it_keeps_a_second_question_from_a_page_that_the_browser_kept(
    user_client: Client, started: list[uuid.UUID]
) -> None:
    form = question(question="The first?")
    for asked in ("The first?", "The first?", "The second?"):
        user_client.post("/ask/", form | {"question": asked})
    assert sorted(Message.objects.values_list("question", flat=True)) == ["The first?", "The second?"]


# --- what stands under and beside the answer


@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        ("http://127.0.0.1:11434", "on this server. No code leaves it."),
        ("http://gpu.lan:8000/v1", "on gpu.lan, in this network. No code leaves the network."),
        ("https://llm.example.com/v1", "at llm.example.com. Passages of code are sent there."),
    ],
)
def test_it_says_which_model_answers_and_where(
    user_client: Client, settings: Settings, user: User, base: str, sentence: str
) -> None:
    settings.LLM_MODEL, settings.LLM_API_BASE = "openai/qwen", base
    address = reverse("conversation", args=[make_conversation(user).pk])
    page = re.sub(r"<[^>]+>", "", user_client.get(address).content.decode())
    assert f"Answers by qwen {sentence}" in page


def test_it_says_how_to_add_a_model_where_there_is_none(user_client: Client, user: User) -> None:
    address = reverse("conversation", args=[make_conversation(user).pk])
    page = user_client.get(address).content.decode()
    assert "<code>LLM_MODEL</code>" in page
    assert reverse("admin:llm_test") not in page
    User.objects.update(is_staff=True, is_superuser=True)
    assert reverse("admin:llm_test") in user_client.get(address).content.decode()


def test_it_offers_a_search_where_an_answer_cites_nothing(user_client: Client, answered: Message) -> None:
    address = reverse("conversation", args=[answered.conversation_id])
    assert b"Search the code for this" not in user_client.get(address).content
    Citation.objects.update(cited=False)
    assert b'href="/search/?q=Where%20is%20it%20signed%3F"' in user_client.get(address).content
