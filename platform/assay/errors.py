"""The one error hierarchy of Assay.

Covers: what can go wrong in a way a person or a caller can act on; each class carries the process exit code of
the command line; what a message says: the nearest names, plain reasons, no credentials of addresses. Leaves out:
programming errors, which stay ordinary exceptions and propagate.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s\"]+@")


def without_credentials(text: str) -> str:
    """The text; its URLs without user and password."""
    return _CREDENTIALS.sub("", text)


class AssayError(Exception):
    """Base of every error that Assay raises on purpose. `str(error)` is one clear line, without credentials of URLs:
    logs, records of runs and failed scores keep it."""

    exit_code = 1
    code = "error"

    def __str__(self) -> str:
        return without_credentials(super().__str__())


class BadInputError(AssayError):
    """The caller's data, arguments or configuration are wrong; trying again unchanged cannot help."""

    exit_code = 2
    code = "bad_input"

    def __init__(
        self, message: str, *, file: str | Path | None = None, row: int | None = None, field: str | None = None
    ) -> None:
        """`file`, `row` (1-based) and `field` say where; they are put in front of the message."""
        self.file = str(file) if file is not None else None
        self.row = row
        self.field = field
        where = [
            part
            for part in (
                self.file,
                f"row {row}" if row is not None else None,
                f"field {field!r}" if field is not None else None,
            )
            if part
        ]
        super().__init__(f"{', '.join(where)}: {message}" if where else message)


class NotFoundError(AssayError):
    """A named thing (workspace, snapshot, model, run) does not exist."""

    exit_code = 3
    code = "not_found"


class ForbiddenError(AssayError):
    """The caller is known, and may not do this."""

    code = "forbidden"


class BusyError(AssayError):
    """A resource is held or full at the moment; the same call may succeed later."""

    exit_code = 4
    code = "busy"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: seconds after which another try makes sense, if known."""
        self.retry_after = retry_after
        super().__init__(message)


class ConflictError(BusyError):
    """Another operation on the same resource is in progress and must end first."""

    code = "conflict"


class RateLimitError(BusyError):
    """The caller has used what it may use for now; others may have room."""

    code = "rate_limited"


class BackendError(AssayError):
    """Something that Assay relies on failed: a model, a server, the disk, a missing optional package."""

    exit_code = 5
    code = "backend"


class LateError(BackendError):
    """The time limit was exceeded."""

    code = "timeout"


def nearest_names(name: object, names: Iterable[str], most: int = 3) -> str:
    """`; did you mean A or B?`, "" where no name is near."""
    near = difflib.get_close_matches(str(name), list(names), n=most)
    return f"; did you mean {' or '.join(near)}?" if near else ""


_TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "a text"}
_TYPES |= {"list": "a list", "tuple": "a list", "dict": "a mapping"}
_BOUNDS = {"greater_than_equal": ("at least", "ge"), "greater_than": ("above", "gt")}
_BOUNDS |= {"less_than_equal": ("at most", "le"), "less_than": ("below", "lt")}


def plain_reason(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, of one of pydantic's `errors()`: what it must be, and, where that is in it, what it
    is."""
    kind, message, context = str(error["type"]), str(error["msg"]), error.get("ctx") or {}
    type_, _, fault = kind.partition("_")
    if kind == "missing":
        return "is missing"
    if type_ in _TYPES and fault in ("type", "parsing", "from_float"):
        requirement = _TYPES[type_]
    elif kind in _BOUNDS and _BOUNDS[kind][1] in context:
        requirement = f"{_BOUNDS[kind][0]} {context[_BOUNDS[kind][1]]}"
    elif message.startswith("Input should be "):
        requirement = message.removeprefix("Input should be ")
    else:
        return message.removeprefix("Value error, ")
    value = error.get("input")
    return f"must be {requirement}, not {value!r}" if isinstance(value, str | int | float) else f"must be {requirement}"
