"""What every container of records has: a stream of rows, each a record or the error of that row, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from assay.data.json_lines import ROW_BYTES, TOO_LARGE, Lines, RowError

#: 1-based row, the record or the error of the row, and the raw bytes where the container has them.
Record: TypeAlias = tuple[int, "dict[str, Any] | RowError", bytes | None]


class Container(Protocol):
    """`size` and `position()` are in `unit`, for a progress bar; `size` None: not known."""

    description: str
    name: str
    size: int | None
    unit: str

    def position(self) -> int: ...
    def records(self) -> Iterator[Record]:
        """Every row from the beginning. A row of more than ROW_BYTES is its RowError."""

    def columns(self) -> list[str] | None:
        """The columns, or None where only the records show them."""


class TextFile:
    """Base class of text files as containers. Raises BadInputError for a file that cannot be opened."""

    unit = "kB"

    def __init__(self, path: Path, description: str) -> None:
        self.path, self.name, self.description = path, path.name, description
        self.size: int | None = Lines(path).size // 1024
        self._raw: Any = None  #: the open file; None: not opened yet

    def position(self) -> int:
        if self._raw is None:
            return 0
        return (self.size or 0) if self._raw.closed else self._raw.tell() // 1024

    def columns(self) -> list[str] | None:
        return None


def content_bytes(record: object) -> int:
    """About the bytes of a record's texts and numbers."""
    size, rest = 0, [record]
    while rest:
        node = rest.pop()
        if isinstance(node, str | bytes):
            size += len(node)
        elif isinstance(node, dict):
            rest += node.values()
        elif isinstance(node, list | tuple):
            rest += node
        else:
            size += 8
    return size


def of_bounded_size(record: dict[str, Any]) -> dict[str, Any] | RowError:
    """The record, or the RowError of one that is too large."""
    return RowError(TOO_LARGE) if content_bytes(record) > ROW_BYTES else record
