"""What a server writes to standard error: one line an event, as text or as JSON, that a caller cannot forge.

Covers: lines of requests (from `gate`), of everything else that logs in the process (uvicorn, asyncio, libraries).
Two rules hold for all of them. A control character or a line break is written as its escape, so that no name, header
or path can start a line of its own or colour a terminal. Of an exception the type and the places are written, never
its message, which may quote a prompt.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal

from assay.errors import BadInputError

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
FIELDS = "fields"  #: name under which a record carries its values (`extra=`)

# Control characters of ASCII and Latin-1, line and paragraph separators, and what turns the direction of text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NEEDS_QUOTES = re.compile(r'[\s"=]|^$')


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower()}
        fields = getattr(record, FIELDS, None)
        if fields is None:
            line |= {"logger": record.name, "message": record.getMessage()}
        else:
            line |= {"event": "request"} | {name: value for name, value in fields.items() if value is not None}
        if (trace := _trace(record)) is not None:
            line["exception"] = trace
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Time, level and message, or `name=value` of a request."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, FIELDS, None)
        if fields is None:
            said = safe(record.getMessage())
        else:
            said = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None)
        if (trace := _trace(record)) is not None:
            said += " " + safe(trace)
        return f"{_time(record)} {record.levelname.lower()} {said}"


def configure_logs(style: Format = "text", *, requests: bool = False) -> None:
    """Send everything that is logged in this process to standard error in this form. Call once, at the start.

    `requests`: a line for each request that went well, too; those that did not have theirs in any case. Start uvicorn
    with `log_config=None`, else it brings handlers of its own.
    """
    if style not in FORMATS:
        raise BadInputError(f"{style!r} is not one of {', '.join(FORMATS)}", field="log_format")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.raiseExceptions = False  # a line that cannot be formatted would be shown with its values
    logging.getLogger("assay.serving").setLevel(logging.INFO if requests else logging.WARNING)


def safe(text: str) -> str:
    """The text with everything that could break or forge a line as an escape."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _quoted(value: object) -> str:
    text = safe(str(value))
    return json.dumps(text, ensure_ascii=False) if _NEEDS_QUOTES.search(text) else text


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str | None:
    """Type and places of the exception, and of those that led to it."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    parts: list[str] = []
    error: BaseException | None = record.exc_info[1]
    while error is not None and len(parts) < 5:
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        places = " > ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames)
        parts.append(f"{type(error).__name__} at {places or 'no place'}")
        error = error.__cause__ or error.__context__
    return " from ".join(parts)
