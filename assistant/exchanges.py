"""Messages -> what the conversation page shows of them: steps, evidence with links, the answer, the person's opinion.

Reads for one person: evidence that may not be read any more keeps its number and loses its link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.utils.safestring import SafeString

from assistant import conversations, extractive
from assistant.citations import Evidence, withheld
from assistant.freshness import changed_since
from assistant.models import Feedback, Message
from assistant.rendering import answer_html
from assistant.stages import Step, steps_of
from indexing.access import Principal
from indexing.links import blob_url

Link = Callable[[Message, Evidence], str]


@dataclass(frozen=True, slots=True)
class EvidenceLink:
    """One row of the evidence list. Without `href` only `label` is shown."""

    number: int
    href: str
    label: str
    title: str
    file: str
    lines: str
    repository: str
    cited: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer. `cited` and `verified` count passages that the answer refers to."""

    message: Message
    stages: list[Step]
    evidence: list[EvidenceLink]
    html: SafeString
    feedback: Feedback | None
    withheld: bool
    cited: int
    verified: int
    removed: list[str]  # names of repositories that the answer cites and that are gone

    @property
    def shared_notices(self) -> list[str]:
        """For readers who did not ask: others may name and count repositories that only the asker can see."""
        shown = () if self.withheld else (extractive.LABEL, extractive.RANKED_ONLY)
        return [sentence for sentence in shown if any(notice.endswith(sentence) for notice in self.message.notices)]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        return list(conversations.FEEDBACK_REASONS.items())


def exchanges_of(messages: Sequence[Message], user: User, *, link: Link | None = None) -> list[Exchange]:
    """`link`: where a passage leads; beside the conversation when nothing else is said."""
    link = link or citation_url
    principal = Principal.of_user(user)
    evidence = conversations.evidence_of(messages, principal)
    opinions = {row.message_id: row for row in Feedback.objects.filter(message__in=messages, user=user)}
    changed = changed_since(item for items in evidence.values() for item in items)
    return [
        _exchange(message, evidence[message.pk], opinions.get(message.pk), principal, changed, link)
        for message in messages
    ]


def _exchange(
    message: Message,
    evidence: list[Evidence],
    feedback: Feedback | None,
    principal: Principal,
    changed: Mapping[int, str],
    link: Link,
) -> Exchange:
    trace = conversations.visible_trace(message, principal)
    cited = [item for item in evidence if item.cited]
    return Exchange(
        message=message,
        stages=steps_of(message, trace, len(evidence)),
        evidence=evidence_links(message, evidence, link=link),
        html=answer_html(message, evidence, link=lambda item: link(message, item), changed=changed),
        feedback=feedback,
        withheld=withheld(evidence),
        cited=len(cited),
        verified=sum(item.verified for item in cited),
        removed=sorted({item.citation.repository_name for item in cited if item.citation and item.state == "removed"}),
    )


def evidence_links(message: Message, evidence: Sequence[Evidence], *, link: Link | None = None) -> list[EvidenceLink]:
    return [_link(message, item, link or citation_url) for item in evidence]


def _link(message: Message, item: Evidence, link: Link) -> EvidenceLink:
    file, _, lines = item.label.rpartition(":")
    citation = item.citation
    return EvidenceLink(
        number=item.number,
        href=link(message, item) if item.linkable else "",
        label=item.label,
        title=item.title,
        file=file,
        lines=lines,
        repository=citation.repository.name if citation and citation.repository else "",
        cited=item.cited or not message.finished,
    )


def citation_url(message: Message, item: Evidence) -> str:
    """The passage beside the conversation; empty for one that must not be opened."""
    return _passage_url(item, message)


def page_url(_message: Message, item: Evidence) -> str:
    """The passage as a page of its own, for readers whose conversation it is not."""
    return _passage_url(item, None)


def _passage_url(item: Evidence, message: Message | None) -> str:
    citation = item.citation
    if citation is None or citation.repository is None:
        return ""
    return blob_url(
        citation.repository.pk,
        citation.repository.slug,
        citation.commit,
        bytes(citation.path),
        byte_range=(citation.start_byte, citation.end_byte),
        line_range=(citation.start_line, citation.end_line),
        message_id=message.pk if message is not None else None,
    )
