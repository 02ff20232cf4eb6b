"""Suggested fixes are checked by Git against the cited files, in a folder where nothing else is."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from assistant import conversations
from assistant.citations import Evidence
from assistant.markdown import render
from assistant.models import Message
from assistant.patches import Verdict, check_patches
from indexing.access import Principal
from indexing.models import Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository

pytestmark = pytest.mark.django_db

FIX = """--- a/src/sessions.py
+++ b/src/sessions.py
@@ -8,3 +8,3 @@

 def unsign(value: str) -> str:
-    return value.rpartition(".")[0]
+    return value.removesuffix(".signature")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    others: dict[str, str | bytes] = {".gitattributes": "*.py filter=evil\n", "other.py": "x = 1\n"}
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS} | others)


@pytest.fixture
def evidence(repository: Repository, user: User) -> list[Evidence]:
    message = conversations.start_message(user, "Fix it", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "src/sessions.py", "def unsign")])
    ending = conversations.Ending(Message.State.DONE, [], answer="[1]", cited=[1], verified=[1])
    conversations.finish(message.pk, 1, ending)
    message.refresh_from_db()
    return conversations.evidence(message, Principal.operator())


def verdict(patch: str, evidence: list[Evidence]) -> Verdict:
    (found,) = check_patches(f"So:\n\n```diff\n{patch}```\n", evidence).values()
    return found


def test_it_says_that_a_fix_applies_to_the_cited_commit(repository: Repository, evidence: list[Evidence]) -> None:
    assert repository.current_index is not None
    assert verdict(FIX, evidence) == Verdict(True, f"Applies to {repository.current_index.commit[:7]}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def unsign", "def resign"),  # a context line that is not there
        ("-8,3 +8,3", "-8,9 +8,9"),  # wrong counts
        ("src/sessions.py", "src/other.py"),  # not cited
        ("src/sessions.py", "../src/sessions.py"),
        ("a/src/sessions.py", "/etc/passwd"),
        ("src/sessions.py", ".git/config"),
        ("@@ -8,3 +8,3 @@", ""),
    ],
)
def test_it_says_that_a_fix_does_not_apply(evidence: list[Evidence], before: str, after: str) -> None:
    found = verdict(FIX.replace(before, after), evidence)
    assert not found.applies
    assert found.sentence.startswith("Does not apply")


def test_it_needs_every_file_of_a_fix_at_that_commit(evidence: list[Evidence]) -> None:
    both = FIX + "--- a/other.py\n+++ b/other.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    assert verdict(both, evidence).applies
    assert not verdict(both.replace("other.py", "missing.py"), evidence).applies
    new_file = FIX + "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
    assert verdict(new_file, evidence).applies


def test_it_leaves_the_mirror_and_the_scratch_folder_as_they_were(
    repository: Repository, evidence: list[Evidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(repository.mirror.path.rglob("*"))
    assert verdict(f"{FIX}\n", evidence).applies
    assert list(scratch.iterdir()) == []
    assert sorted(repository.mirror.path.rglob("*")) == before


def test_it_checks_nothing_that_may_not_be_read() -> None:
    hidden = [Evidence(1, None, "hidden", "[1]", "You cannot read this passage.")]
    assert verdict(FIX, hidden) == Verdict(False, "Does not apply: it names no cited file")


def test_it_shows_the_verdict_the_file_and_line_numbers(evidence: list[Evidence]) -> None:
    text = f"```diff\n{FIX}```"
    html = render(text, {}, check_patches(text, evidence))
    assert '<span class="grow cut">src/sessions.py</span><span class="ok">Applies to ' in html
    assert '<li class="del"><span class="ln">-10</span>' in html
    assert '<li class="add"><span class="ln">+10</span>' in html
    assert ">Copy patch</button>" in html
