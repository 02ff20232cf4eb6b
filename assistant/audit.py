"""The audit log as staff read it: who did what to what, newest first, in the admin and as CSV.

Rows are written by `indexing.audit.record`; nothing here changes or removes one. Events about repositories that the
reader may not see are left out, for superusers nothing is.
"""

from __future__ import annotations

import csv

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

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
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="audit.csv"'
        write = csv.writer(response).writerow
        write(COLUMNS)
        for event in queryset:
            write([event.at.isoformat(), *(_inert(getattr(event, column)) for column in COLUMNS[1:])])
        return response


def _inert(cell: str) -> str:
    """Spreadsheets run cells that begin like this."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
