"""Log records as lines of JSON, for machines that collect them: `LOG_FORMAT=json`.

A line has time, level, logger, message and the id of the request it belongs to. Of an exception it has the type and
the places in the program that it went through, never its own message: those of databases, parsers and language
models quote what they were given, and that may be source text.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime

from assistant.observing import current_request_id

EXTRA = ("route", "status", "milliseconds")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if request_id := current_request_id():
            line["request_id"] = request_id
        line |= {name: value for name in EXTRA if (value := getattr(record, name, None)) is not None}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["places"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, default=str, ensure_ascii=False)
