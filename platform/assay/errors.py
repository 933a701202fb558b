"""The one error hierarchy of Assay.

Covers: what can go wrong in a way a person or a caller can act on; each class carries the process exit code of
the command line; the nearest names for a message. Leaves out: programming errors, which stay ordinary exceptions and
propagate.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path


class AssayError(Exception):
    """Base of every error that Assay raises on purpose. `str(error)` is one clear line."""

    exit_code = 1
    code = "error"


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
