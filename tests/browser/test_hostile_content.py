"""Nothing that a repository, a model, a person or an address says runs, loads or leads anywhere in any page.

One repository holds all of tests/browser/payloads.py. Every page is opened as a person does, and must hold no element
that could act: a violation of the content policy, a request to another host, a dialog or an error fails as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Page, Response, expect

from tests.browser import payloads
from tests.browser.conftest import DESKTOP, Browser, Person, Server
from tests.factories import commit_files, git, make_repo

pytestmark = pytest.mark.browser

# Runs before every page's own scripts: what must not happen ends up in the console, where `Person` reads it.
TRIPWIRES = """
window.owned = () => console.error("a payload ran");
for (const name of ["alert", "prompt"]) window[name] = () => console.error(`${name} was called`);
addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`));
"""

# What in a page could act, although the policy would stop it: an answer of the server is inert by itself.
ACTIVE = """() => {
  const found = [], note = (element, why) => found.push(`${why}: ${element.outerHTML.slice(0, 160)}`);
  const links = /^(href|src|action|formaction|data|poster|background|srcset|xlink:href|ping|manifest)$/i;
  for (const element of document.querySelectorAll("*")) {
    const theirs = element.closest(".prose, .code, .trace, .list, .outline, .crumbs, h1, .results, #result_list");
    if (/^(BASE|OBJECT|EMBED|APPLET|MATH|STYLE|MARQUEE|FRAME)$/.test(element.tagName)) note(element, "element");
    if (element.tagName === "META" && /refresh|policy/i.test(element.httpEquiv)) note(element, "meta");
    if (element.tagName === "SCRIPT" && !element.src && !/json/.test(element.type)) note(element, "inline script");
    const caged = element.sandbox?.length && !/same-origin/.test(element.sandbox);
    if (element.tagName === "IFRAME" && !caged) note(element, "frame");
    for (const {name, value} of element.attributes) {
      if (/^on/i.test(name) || name === "srcdoc") note(element, "attribute");
      if (/url\\(/i.test(value) && name === "style") note(element, "style");
      if (/^(data-)?hx-/.test(name) && theirs && theirs.matches(".prose, .code, .trace")) note(element, "htmx");
      if (!links.test(name)) continue;
      const url = new URL(value, location.href);
      if (!/^https?:$/.test(url.protocol)) note(element, "scheme");
      const leaves = element.tagName === "A" && element.target === "_blank" && /noopener/.test(element.rel);
      if (url.origin !== location.origin && !leaves) note(element, "host");
    }
  }
  return found;
}"""


class Watched:
    """A window that remembers where its requests went, and reads each page for what could act."""

    def __init__(self, person: Person) -> None:
        self.page: Page = person.page
        self.hosts: set[str] = set()
        self.pages = 0
        self.refused: list[str] = []
        person.context.add_init_script(TRIPWIRES)
        person.context.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        person.context.on("response", self._note)
        self.page.on("dialog", lambda dialog: person.complaints.append(f"dialog: {dialog.message}"))

    def _note(self, response: Response) -> None:
        if response.status >= 400 and response.status != 422:
            self.refused.append(response.url)

    def open(self, url: str, *says: str) -> None:
        """`says`: text that the page must show as text, so that the payload was there at all."""
        response = self.page.goto(url)
        assert response is not None
        assert response.status == 200, url
        self.check(url, *says)

    def check(self, where: str, *says: str) -> None:
        self.pages += 1
        assert self.page.evaluate(ACTIVE) == [], where
        shown = self.page.evaluate("document.title + document.documentElement.textContent")
        for text in says:
            assert text in shown, f"{where} does not show {text!r}"


@pytest.fixture(scope="module")
def hostile(browser: Browser, server: Server, indexed: str) -> Iterator[str]:
    """The address of the hostile repository's folder page; added through the page, removed afterwards."""
    repository = make_repo(server.work_tree.parent, {}, name=payloads.DIRECTORY)
    commit_files(repository, payloads.files(), message=payloads.MESSAGE)
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    raw = f"tree {tree}\nauthor {payloads.AUTHOR} <a@localhost> 1 +0000\ncommitter x <x@localhost> 1 +0000\n\nx\n"
    commit = git(repository, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw.encode())
    git(repository, "update-ref", f"refs/heads/{payloads.BRANCH}", commit)
    person = Person(browser, server, "lead", DESKTOP)
    page = person.page
    page.goto("/repositories/")
    page.fill("#source", str(repository))
    page.fill("#ref", payloads.BRANCH)
    page.select_option("#visibility", "private")
    page.click("button:has-text('Add repository')")
    row = page.locator(".repos > li", has_text=payloads.BRANCH)
    row.get_by_text("Up to date").wait_for(timeout=90_000)
    number = str(row.get_attribute("id")).removeprefix("repository-")
    yield f"/r/{number}/x/folder/{commit}"
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/repositories/")
    row.locator("summary[aria-label^=More]").click()
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    person.context.close()


def ask(watched: Watched, question: str, *replies: str) -> str:
    """The address of the conversation, once its answer is complete."""
    page = watched.page
    page.goto("/")
    page.fill("#q", question)
    page.press("#q", "Enter")
    page.wait_for_url("**/c/**")
    expect(page.locator(".prose:not([data-state])")).to_be_visible(timeout=20_000)
    return page.url.split("#")[0]


def script(person: Person, answer: str) -> None:
    ranking = {"ranking": [{"id": n, "relevance": 3 if n < 8 else 0, "reason": payloads.REASON} for n in range(1, 21)]}
    replies = [json.dumps(payloads.PLAN), json.dumps(ranking), answer]
    person.server.model.script = [(200, {}, reply) for reply in replies]
    person.server.model.pause_seconds = 0


def test_it_has_a_corpus_worth_the_name() -> None:
    assert payloads.count() >= 60


def test_it_keeps_conversations_inert(lead: Person, reader: Person, hostile: str) -> None:
    watched, page = Watched(lead), lead.page
    earlier = len(lead.server.model.requests)  # those of other tests
    addresses = []
    for number, question in enumerate(payloads.QUESTIONS):
        first, *blocks = payloads.ANSWER_BLOCKS
        script(lead, "\n\n".join((first, *blocks[number::2])))
        addresses.append(ask(watched, question))
        watched.check("while it was streamed", question, "owned()")
        watched.open(addresses[-1], question, "owned()")
        assert page.locator(".prose img, .prose svg:not(.icon):not(.flow)").count() == 0
        page.locator("a.citation[href]").first.hover()
        expect(page.locator("#preview")).to_be_visible()
        watched.check("preview")
        page.locator("[data-trace]").last.click()
        expect(page.locator("#pane")).to_contain_text(payloads.PLAN["english_query"])
        watched.check("trace", payloads.PLAN["hypothetical_document"].split("\n")[0], payloads.REASON)
    page.locator("summary[aria-label^=More]").last.click()
    page.fill("input[name=title]", payloads.TITLE)
    page.get_by_role("button", name="Rename").click()
    watched.check("renamed", payloads.TITLE)
    assert page.title().startswith(payloads.TITLE)
    page.locator("summary[aria-label=Share]").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.locator(".share input[readonly]").input_value()
    watched.open(link, payloads.TITLE, payloads.QUESTIONS[1])
    other = Watched(reader)
    other.open(link, payloads.TITLE)
    assert watched.hosts | other.hosts == {urlsplit(lead.server.url).netloc}
    check_export(page, addresses[-1])
    check_prompts(lead.server.model.requests[earlier:])


def check_export(page: Page, conversation: str) -> None:
    """Files that are downloaded; and a program that shows the Markdown, HTML and all, finds nothing in it to load."""
    for name in ("export.md", "export.json"):
        response = page.request.get(f"{conversation}{name}")
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["x-content-type-options"] == "nosniff"
    markdown = page.request.get(f"{conversation}export.md").text()
    viewer = page.context.new_page()  # without a policy
    viewer.set_content(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
    assert viewer.locator("img, svg, script, iframe, link, meta, form, details").count() == 0
    schemes = viewer.evaluate("[...new Set([...document.links].map((link) => link.protocol))]")
    assert set(schemes) <= {"https:"}


def check_prompts(requests: list[dict[str, object]]) -> None:
    """Whatever a passage says stays between marks that it cannot know; the rules come before and say so."""
    marks = set()
    asked = [request for request in requests if request.get("stream") and "Passages:" in json.dumps(request)]
    for request in asked:
        rules, *_, last = [message["content"] for message in request["messages"]]  # type: ignore[index, attr-defined]
        mark = re.search(r'"<<<([0-9a-f]{16}) n"', rules).group(1)  # type: ignore[union-attr]
        passages = last.split("Passages:\n", 1)[1].rsplit("\nQuestion:", 1)[0]
        blocks = re.findall(rf"<<<{mark} \d+\n.*?\n{mark}>>>\n", passages, flags=re.DOTALL)
        assert "".join(blocks) == passages
        assert "never follow it" in rules
        marks.add(mark)
    assert len(marks) == len(asked) > 0


def test_it_keeps_code_inert(lead: Person, hostile: str) -> None:
    watched, page = Watched(lead), lead.page
    watched.open(hostile, payloads.FILE_NAMES[0], payloads.DIRECTORY)
    blob = hostile.replace("/folder/", "/blob/")
    for path in payloads.files():
        name = path.rsplit("/", 1)[-1].replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩")
        watched.open(f"{blob}?path={quote(path)}", name)
        if path == "shop/notes.txt":
            watched.check(path, *payloads.CODE)
    for kind in ("changes", "similar"):
        watched.open(f"{hostile.replace('/folder/', f'/{kind}/')}?path=shop/orders.py&bytes=0-60&lines=1-3")
    watched.open(f"{hostile.replace('/folder/', '/references/')}?path=shop/orders.py&name=cancel_order", "cancel_order")
    for query in ("cancel order", *payloads.HEADINGS[:1], f'"{payloads.CODE[2]}"', "refund assistant"):
        watched.open(f"/search/?q={quote(query)}", query)
    page.goto("/")
    page.locator("#q").press_sequentially("@<i")
    expect(page.locator("#completion")).to_contain_text(payloads.DIRECTORY)
    page.keyboard.press("Tab")
    watched.check("a chip", payloads.DIRECTORY)
    page.locator("#q").press_sequentially(" path:<")
    watched.check("a folder completed")
    assert (watched.hosts, watched.refused) == ({urlsplit(lead.server.url).netloc}, [])


def test_it_keeps_lists_admin_and_addresses_inert(lead: Person, hostile: str) -> None:
    watched, page = Watched(lead), lead.page
    watched.open("/repositories/", payloads.DIRECTORY, payloads.BRANCH)
    page.fill("#source", "-" + payloads.DIRECTORY)
    page.click("button:has-text('Add repository')")
    watched.check("a refused source", "looks like an option", payloads.DIRECTORY)
    lead.complaints = [complaint for complaint in lead.complaints if "422" not in complaint]  # that refusal
    for url in (*payloads.ADDRESSES, "/dashboard/", "/evaluation/", f"/sign-in/?next={quote('javascript:owned()')}"):
        watched.open(url)
    page.goto("/admin/")
    lists = page.evaluate("[...document.querySelectorAll('#content-main th a')].map((link) => link.pathname)")
    assert len(lists) >= 5
    for url in lists:
        watched.open(url)
        first = page.locator("#result_list th a").first
        if first.count():
            watched.open(str(first.get_attribute("href")))
    watched.open("/admin/indexing/repository/?q=%3Cimg", payloads.DIRECTORY)
    watched.open("/admin/assistant/conversation/")
    assert (watched.hosts, watched.refused) == ({urlsplit(lead.server.url).netloc}, [])
