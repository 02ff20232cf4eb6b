from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from assistant import conversations, source_view
from assistant.citations import Evidence
from assistant.errors import SourceNotFound
from assistant.source_view import Row, SourceView, read_passages, read_view
from indexing.access import Principal
from indexing.models import Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import make_conversation, make_message, make_user

pytestmark = pytest.mark.django_db

TAGS = re.compile(r"<[^>]+>")
MULTIBYTE = "# 日本語 🙂 é\r\ndef größe(x):\r\n    return 'é' + x  # 🙂\r\n\r\nlast = 1\r\n"


def _view(repository: Repository, path: str, start: int = 0, end: int = 0, **options: object) -> SourceView:
    assert repository.current_index is not None
    return read_view(repository, repository.current_index.commit, path.encode(), start, end, **options)  # type: ignore[arg-type]


def _plain(row: Row) -> str:
    return html.unescape(TAGS.sub("", row.html))


def _marked(rows: tuple[Row, ...]) -> str:
    """The text from the caret at the first byte to the caret at the last, as a reader sees it."""
    whole = "\n".join(row.html for row in rows)
    start = re.search(r'<span class="from( to)?">', whole)
    assert start is not None
    if start.group(1):
        inside = whole[start.end() : _closing(whole, start.end())]
    else:
        to = re.search(r'<span class="to">', whole)
        assert to is not None
        inside = whole[start.end() : _closing(whole, to.end())]
    return html.unescape(TAGS.sub("", inside))


def _closing(text: str, at: int) -> int:
    depth = 1
    for tag in re.finditer(r"<(/?)span[^>]*>", text[at:]):
        depth += -1 if tag.group(1) else 1
        if depth == 0:
            return at + tag.start()
    raise AssertionError("unbalanced")


@pytest.mark.parametrize(
    ("content", "passage"),
    [
        (MULTIBYTE.encode(), "größe(x):\r\n    return 'é' + x".encode()),
        (MULTIBYTE.encode(), "🙂".encode()),
        (MULTIBYTE.encode(), "def größe(x):\r\n".encode()),
        (("\ufeff" + MULTIBYTE).encode(), "# 日本語 🙂".encode()),
        (MULTIBYTE.encode("utf-16"), "return 'é' + x  # 🙂".encode("utf-16-le")),
        (MULTIBYTE.replace("\r\n", "\r").encode(), "größe(x):\r    return".encode()),
        ("# Größe für Straße\ndef größe(): return 'ä'\n".encode("latin-1"), "größe(): return 'ä'".encode("latin-1")),
    ],
)
def test_it_marks_exactly_the_bytes_of_the_range(tmp_path: Path, content: bytes, passage: bytes) -> None:
    repository = real_repository(tmp_path, {"größe.py": content})
    start = content.index(passage)
    view = _view(repository, "größe.py", start, start + len(passage))
    encoding = "utf-16-le" if content.startswith(b"\xff\xfe") else "latin-1" if b"\xfc" in content else "utf-8"
    expected = passage.decode(encoding).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    assert _marked(view.rows) == expected
    assert view.marked_text == expected
    hits = [row.number for row in view.rows if row.hit]
    assert hits == list(range(view.start_line, view.end_line + 1))


def test_it_shows_every_line_as_it_is_and_highlights(tmp_path: Path) -> None:
    view = _view(real_repository(tmp_path, {"a.py": MULTIBYTE.encode()}), "a.py")
    assert [_plain(row) for row in view.rows] == MULTIBYTE.split("\r\n")[:-1]
    assert view.rows[1].html.startswith('<span class="k">def</span> <span class="f">größe</span>')
    assert (view.start_line, view.end_line, view.marked_text) == (0, 0, "")
    assert not any(row.hit for row in view.rows)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_it_draws_a_byte_order_mark_that_is_not_at_the_begin(tmp_path: Path, encoding: str) -> None:
    content = "\ufeffa = 1\n\ufeffb = 2\n".encode(encoding)
    repository = real_repository(tmp_path, {"a.py": content})
    start = content.index("b".encode(encoding))
    view = _view(repository, "a.py", start, len(content))
    assert [_plain(row) for row in view.rows] == ["a = 1", "⟨U+FEFF⟩b = 2"]
    assert _marked(view.rows) == "b = 2"


def test_it_shows_a_window_of_a_large_file_with_ways_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"x{n} = {n}" for n in range(1, 3001)]
    content = "\n".join(lines)
    highlighted: list[str] = []
    real = source_view.highlighted_pieces
    monkeypatch.setattr(
        source_view, "highlighted_pieces", lambda text, language: highlighted.append(text) or real(text, language)
    )
    start = content.index("x2000 =")
    repository = real_repository(tmp_path, {"a.py": content})
    view = _view(repository, "a.py", start, start + 5)
    assert (view.first_line, view.last_line, view.line_count) == (1960, 2359, 3000)
    assert (view.earlier, view.later) == (1560, 2360)
    assert len(highlighted[0].split("\n")) == 400
    later = _view(repository, "a.py", start, start + 5, first_line=2360)
    assert (later.rows[0].number, _plain(later.rows[0]), later.later) == (2360, "x2360 = 2360", 2760)
    last = _view(repository, "a.py", first_line=99_999)
    assert (last.first_line, last.last_line, last.later) == (3000, 3000, None)


def test_it_masks_secrets_that_begin_outside_of_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = [("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + str(n) * 32)[:64] for n in range(10, 30)]
    content = "\n".join(["KEY = '''-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----'''"])
    monkeypatch.setattr(source_view, "WINDOW_LINES", 5)
    repository = real_repository(tmp_path, {"a.py": content})
    view = _view(repository, "a.py", first_line=10)
    assert not any("MII" in _plain(row) for row in view.rows)
    start = content.index(body[8])
    marked = _view(repository, "a.py", start, start + 64)
    assert marked.marked_text == "•" * 64


def test_it_keeps_hostile_code_inert(tmp_path: Path) -> None:
    content = "x = '</span><img src=x onerror=alert(1)>'\n# </script><script>alert(1)</script>\ny = '\u202e'\n"
    view = _view(real_repository(tmp_path, {"a.py": content}), "a.py", 4, 20)
    for row in view.rows:
        assert not re.search(r"<(?!/?span)", row.html)
        assert set(re.findall(r"<span( class=\"(?:k|s|c|f|n|from|to|from to)\")?>", row.html)) <= {
            f' class="{name}"' for name in ("k", "s", "c", "f", "n", "from", "to", "from to")
        }
    assert "⟨U+202E⟩" in view.rows[2].html


def test_it_shows_the_marked_part_of_a_very_long_line(tmp_path: Path) -> None:
    content = "a = '" + "x" * 50_000 + "needle" + "y" * 50_000 + "'\n"
    start = content.index("needle")
    view = _view(real_repository(tmp_path, {"a.js": content}), "a.js", start, start + 6)
    assert _marked(view.rows) == "needle"
    assert len(view.rows[0].html) < 2000
    assert "more characters" in view.rows[0].html
    assert view.cut_lines == 1


@pytest.mark.parametrize(("start", "end"), [(5, 5), (-3, 4), (0, 10_000), (9, 2)])
def test_it_marks_nothing_for_a_range_outside_of_the_file(tmp_path: Path, start: int, end: int) -> None:
    view = _view(real_repository(tmp_path, {"a.py": "x = 1\n"}), "a.py", start, end)
    assert (view.start_byte, view.end_byte, view.start_line) == (0, 0, 0)
    assert [_plain(row) for row in view.rows] == ["x = 1"]


def _evidence(repository: Repository, *passages: str) -> list[Evidence]:
    owner = make_user()
    message = make_message(make_conversation(owner))
    conversations.claim(message.pk)
    hits = [hit_for(repository, "src/sessions.py", passage) for passage in passages]
    conversations.store_evidence(message.pk, 1, hits)
    message.refresh_from_db()
    return conversations.evidence(message, Principal.of_user(owner))


def test_it_outlines_symbols_and_flags_what_an_answer_cites(tmp_path: Path) -> None:
    code = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"
    repository = real_repository(tmp_path, {"src/sessions.py": code})
    evidence = _evidence(repository, "def g(self):\n        return 2", "class A:")
    start = code.index("return 2")
    view = _view(repository, "src/sessions.py", start, start + 8, evidence=evidence)
    assert [(s.letter, s.name, s.depth, s.start_line, s.flags, s.current) for s in view.outline] == [
        ("C", "A", 0, 1, (2,), False),
        ("M", "f", 1, 2, (), False),
        ("M", "g", 1, 5, (1,), True),
    ]
    assert [(row.number, row.flags) for row in view.rows if row.flags] == [(1, (2,)), (5, (1,))]


def test_it_knows_the_page_of_the_hosting_site(tmp_path: Path) -> None:
    repository = real_repository(tmp_path, {"src/a b.py": "x = 1\ny = 2\n"})
    repository.mirror.url = "https://github.com/acme/web"
    view = _view(repository, "src/a b.py", 6, 11)
    assert view.hosting_url == f"https://github.com/acme/web/blob/{view.commit}/src/a%20b.py#L2-L2"
    assert view.name == "a b.py"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("missing.py", "no file at this path"),
        ("src", "no file at this path"),
        ("", "no file at this path"),
        ("../a.py", "no file at this path"),
        (":(glob)*", "no file at this path"),
        (".env", "may hold secrets"),
        ("keys/id_rsa", "may hold secrets"),
        ("image.bin", "binary file"),
    ],
)
def test_it_shows_no_such_file(tmp_path: Path, path: str, sentence: str) -> None:
    files: dict[str, str | bytes] = {"src/a.py": "x", ".env": "A=b", "keys/id_rsa": "k", "image.bin": b"\0\1\2" * 50}
    with pytest.raises(SourceNotFound, match=sentence):
        _view(real_repository(tmp_path, files), path)


@pytest.mark.parametrize("commit", ["main", "HEAD", "--help", "0" * 40, "", "A" * 40])
def test_it_shows_only_commits_that_were_indexed(tmp_path: Path, commit: str) -> None:
    repository = real_repository(tmp_path, {"a.py": "x = 1\n"})
    with pytest.raises(SourceNotFound, match="no indexed commit"):
        read_view(repository, commit, b"a.py")


def test_it_still_shows_what_is_cited_when_the_index_has_moved_on(tmp_path: Path) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    assert repository.current_index is not None
    commit = repository.current_index.commit
    _evidence(repository, "def sign")
    repository.indexes.all().delete()
    assert read_view(repository, commit, b"src/sessions.py").line_count == 10


def test_it_says_when_the_mirror_is_gone(tmp_path: Path) -> None:
    repository = real_repository(tmp_path, {"a.py": "x = 1\n"})
    repository.mirror.path.rename(tmp_path / "elsewhere")
    with pytest.raises(SourceNotFound):
        _view(repository, "a.py")


def test_it_reads_passages_and_shortens_long_ones(tmp_path: Path) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    evidence = _evidence(repository, SESSIONS, "def unsign(value: str)")
    passages = read_passages(evidence, max_lines=4)
    assert [row.number for row in passages[1].rows] == [1, 2, 3, 4]
    assert passages[1].hidden_lines == 6
    assert _marked(passages[2].rows) == "def unsign(value: str)"


def test_it_reads_no_passage_that_is_not_linkable(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, visibility="private")
    message = make_message(make_conversation(user))
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "src/sessions.py", "def sign")])
    message.refresh_from_db()
    assert read_passages(conversations.evidence(message, Principal.of_user(user))) == {}
