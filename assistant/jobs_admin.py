"""What waits for Slack and for callbacks, as operators see it: how far each is, why one was given up, and *Retry*.

Neither questions nor addresses are shown: an address may have a secret in it, so its host stands for it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from assistant import jobs, tasks
from assistant.models import Callback, LeasedJob
from indexing.admin import RecordAdmin
from indexing.audit import record


class LeasedJobAdmin(RecordAdmin):
    list_filter = ("state",)
    ordering = ("-pk",)
    actions = ("retry",)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(f"assistant.change_{self.opts.model_name}"))

    @admin.action(description="Retry", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[LeasedJob]) -> None:
        """Those that were given up, with all of their attempts."""
        begun = [job for job in queryset if jobs.requeue(job, self.send)]
        for job in begun:
            record(request.user, f"{self.opts.verbose_name} tried again", f"{self.opts.verbose_name} {job.pk}")
        self.message_user(request, f"{len(begun)} of them were given up, and are tried again.")

    def send(self, pk: int) -> None:
        raise NotImplementedError


class SlackJobAdmin(LeasedJobAdmin):
    fields = list_display = ("pk", "kind", "state", "attempts", "error", "due_at", "created_at", "finished_at")

    def send(self, pk: int) -> None:
        tasks.answer_slack.delay(pk)


class CallbackAdmin(LeasedJobAdmin):
    fields = list_display = (
        *("pk", "host", "state", "attempts", "status", "error"),
        *("due_at", "created_at", "finished_at"),
    )

    @admin.display(description="host")
    def host(self, callback: Callback) -> str:
        return urlsplit(callback.url).hostname or ""

    def send(self, pk: int) -> None:
        tasks.call_back.delay(pk)
