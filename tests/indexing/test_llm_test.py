from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings

from indexing.models import LLMCall
from tests.factories import make_user
from tests.stub_llm_server import serve

ADDRESS = "/admin/indexing/llmcall/test/"

pytestmark = pytest.mark.django_db


def test_it_shows_what_was_asked_answered_and_how_long_it_took(staff_client: Client, settings: Settings) -> None:
    with serve() as model:
        settings.LLM_MODEL, settings.LLM_API_BASE, settings.LLM_API_KEY = "openai/stub", model.base, "secret-key"
        model.script = [(200, {}, "It is <b>Python</b>.")]
        assert b"Test the language model" in staff_client.get(ADDRESS).content
        page = staff_client.post(ADDRESS).content.decode()
    assert "Which language is this line" in page
    assert "It is &lt;b&gt;Python&lt;/b&gt;." in page
    assert f"{LLMCall.objects.get(purpose='test').milliseconds} ms" in page
    assert "21 asked, 5 answered" in page
    assert "secret-key" not in page


def test_it_says_which_setting_to_change(staff_client: Client, settings: Settings) -> None:
    with serve() as model:
        settings.LLM_MODEL, settings.LLM_API_BASE, settings.LLM_API_KEY = "openai/stub", model.base, "secret-key"
        model.script = [(401, {}, "")]
        page = staff_client.post(ADDRESS).content.decode()
    assert "set LLM_API_KEY to a valid key" in page
    assert "secret-key" not in page


def test_it_says_when_there_is_no_model(staff_client: Client, settings: Settings) -> None:
    settings.LLM_MODEL = ""
    assert "set LLM_MODEL" in staff_client.post(ADDRESS).content.decode()


def test_it_is_for_staff_who_may_see_the_ledger() -> None:
    client = Client()
    client.force_login(make_user(is_staff=True))
    assert client.get(ADDRESS).status_code == 403


def test_it_is_found_from_the_ledger(staff_client: Client) -> None:
    assert ADDRESS in staff_client.get("/admin/indexing/llmcall/").content.decode()
