"""How a repository stands, as columns of the admin: state with progress or error, freshness, size and cost.

In: rows with `newest_indexes` (the newest build) and `described_usd`, as `with_standing` adds them. Out: inert HTML.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, Prefetch, QuerySet, Subquery, Sum
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from indexing.models import Index, LLMCall, Repository
from indexing.status import status_of

COLUMNS = ("state", "freshness", "files", "chunks", "skipped", "size", "cost")
NOT_INDEXED = "Choose it and Index again."


def with_standing(repositories: QuerySet[Repository]) -> QuerySet[Repository]:
    newest = Prefetch("indexes", queryset=Index.objects.order_by("-pk")[:1], to_attr="newest_indexes")
    calls = LLMCall.objects.filter(repository=OuterRef("pk"), purpose=LLMCall.Purpose.DESCRIBE).order_by()
    cost = calls.values("repository").annotate(total=Sum("cost_usd")).values("total")
    rows = repositories.select_related("current_index", "mirror").prefetch_related(newest)
    return rows.annotate(described_usd=Subquery(cost))


class RepositoryColumns:
    """Nothing here asks the database again."""

    @admin.display(description="state")
    def state(self, repository: Repository) -> SafeString:
        status = status_of(repository, newest := _newest(repository), repository.current_index)
        said = format_html('<span class="state" data-s="{}">{}</span>', status.dot, status.label)
        if newest is None:
            return said + format_html('<span class="quiet">{}</span>', NOT_INDEXED)
        if newest.error:  # says itself what to do
            return said + format_html('<span class="quiet trouble">{}</span>', newest.error[:400])
        if status.percent is None:
            return said
        return said + format_html(
            '<progress max="100" value="{}" aria-label="{}"></progress><span class="quiet">{}</span>',
            *(status.percent, f"{status.percent} %", _progress(newest, status.percent)),
        )

    @admin.display(description="commit")
    def freshness(self, repository: Repository) -> SafeString:
        index = repository.current_index
        said = format_html("<code>{}</code>", index.commit[:10]) if index else SafeString("")
        if behind := repository.commits_behind:
            said += format_html(
                '<span class="quiet late">{} commit{} behind</span>', behind, "" if behind == 1 else "s"
            )
        if repository.checked_at is not None:
            said += format_html(
                '<span class="quiet">asked {} ago</span>', timesince(repository.checked_at).split(",")[0]
            )
        if repository.check_error:
            said += format_html('<span class="quiet late">{}</span>', repository.check_error[:200])
        return said

    @admin.display(description="files")
    def files(self, repository: Repository) -> str:
        return f"{repository.current_index.files_done:,}" if repository.current_index else ""

    @admin.display(description="chunks")
    def chunks(self, repository: Repository) -> str:
        return f"{repository.current_index.chunks_done:,}" if repository.current_index else ""

    @admin.display(description="skipped")
    def skipped(self, repository: Repository) -> SafeString | str:
        index = repository.current_index
        if index is None:
            return ""
        address = reverse("skipped_files", args=[repository.pk])
        return format_html('<a href="{}">{}</a>', address, f"{sum(index.skipped.values()):,}")

    @admin.display(description="index size")
    def size(self, repository: Repository) -> str:
        return filesizeformat(repository.current_index.size_bytes) if repository.current_index else ""

    @admin.display(description="described, $")
    def cost(self, repository: Repository) -> str:
        spent: Any = getattr(repository, "described_usd", None)  # Any: an annotation
        return f"{spent:.2f}" if spent else ""


def _newest(repository: Repository) -> Index | None:
    return next(iter(getattr(repository, "newest_indexes", ())), None)


def _progress(index: Index, percent: int) -> str:
    done = f"{index.chunks_done:,} of {index.chunks_known:,} chunks" if index.chunks_known else ""
    files = f"{index.files_done:,} of {index.files_known:,} files"
    left = f", about {max(1, round(index.seconds_left / 60))} min left" if index.seconds_left else ""
    return f"{percent} %, {index.get_step_display()}: {done or files}{left}"
