"""The audit log as staff read it: who did what to what, newest first, in the admin and as CSV.

Rows are written by `indexing.audit.record`; nothing here changes or removes one. Events about repositories that the
reader may not see are left out, for superusers nothing is.
"""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from assistant.tables import csv_response
from indexing.access import Principal
from indexing.admin import RecordAdmin
from indexing.models import AuditEvent

COLUMNS = ("at", "actor", "action", "target", "detail")


class AuditEventAdmin(RecordAdmin):
    list_display = COLUMNS
    list_filter = ("action",)
    search_fields = ("actor", "action", "target", "detail")
    date_hierarchy = "at"
    fields = COLUMNS
    actions = ("export",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEvent]:
        return AuditEvent.objects.visible_to(Principal.of_user(request.user))

    @admin.action(description="Export as CSV")
    def export(self, request: HttpRequest, queryset: QuerySet[AuditEvent]) -> HttpResponse:
        rows = ([event.at.isoformat(), *(getattr(event, name) for name in COLUMNS[1:])] for event in queryset)
        return csv_response("audit.csv", COLUMNS, rows)
