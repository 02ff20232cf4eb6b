"""Rows -> a CSV file for a spreadsheet, in which no cell can be a formula."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from django.http import HttpResponse

RUNS_IN_A_SPREADSHEET = ("=", "+", "-", "@", "\t", "\r")


def csv_response(file_name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{file_name}"'
    write = csv.writer(response).writerow
    write(columns)
    for row in rows:
        write([_inert(str(cell)) for cell in row])
    return response


def _inert(cell: str) -> str:
    return f"'{cell}" if cell.startswith(RUNS_IN_A_SPREADSHEET) else cell
