"""Logs on standard error: one line per event, as text or JSON, that clients cannot forge.

Covers: lines of requests (from `auth.middleware`) and of all loggers of the process (uvicorn, asyncio, libraries).
Control characters and line breaks are escaped, so that no name, header or path can start a line or colour a terminal.
Of an exception the type and the traceback are written, never its message, which may quote a prompt.
"""

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["text", "json"]
FIELDS = "fields"  #: name of the attribute with a record's values (`extra=`)

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
            text = safe(record.getMessage())
        else:
            text = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None)
        if (trace := _trace(record)) is not None:
            text += " " + safe(trace)
        return f"{_time(record)} {record.levelname.lower()} {text}"


def configure_logs(style: Format = "text", *, requests: bool = False) -> None:
    """Send all logs of this process to standard error in this form. Call once, at the start.

    `requests`: log successful requests too; failed ones always are. Start uvicorn with `log_config=None`, or it
    installs handlers of its own.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.raiseExceptions = False  # else a line that cannot be formatted is printed with its values
    logging.getLogger("assay.serving").setLevel(logging.INFO if requests else logging.WARNING)


def safe(text: str) -> str:
    """The text with all characters escaped that could break or forge a line."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def _quoted(value: object) -> str:
    text = safe(str(value))
    return json.dumps(text, ensure_ascii=False) if _NEEDS_QUOTES.search(text) else text


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str | None:
    """Type and traceback of the exception and of its causes."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    parts: list[str] = []
    error: BaseException | None = record.exc_info[1]
    while error is not None and len(parts) < 5:
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        places = " > ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames)
        parts.append(f"{type(error).__name__} at {places or 'unknown'}")
        error = error.__cause__ or error.__context__
    return " from ".join(parts)
