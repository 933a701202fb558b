"""Typed rows of a JSON Lines file, all or none: what training reads directly, without a workspace.

Covers: naming file, row and field at the first bad row; rows that hold nothing of the kind, counted in a warning.
Leaves out: what the rows mean (each reader's), files whose good rows are to be taken (`assay data import`).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from assay.data.json_lines import Lines, RowError, parse_object
from assay.errors import BadInputError

log = logging.getLogger(__name__)
Row = TypeVar("Row")


class RowFile(Collection[Row]):
    """The rows of `read_rows`, parsed again each time they are iterated over: none stays in memory.

    Raises as `read_rows` does, when it is made.
    """

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], Iterable[Row]], *, what: str) -> None:
        self._iterate = partial(_parsed_rows, path, parse, what)
        self._length = sum(1 for _ in self._iterate(log.warning))

    def __iter__(self) -> Iterator[Row]:
        return self._iterate(log.debug)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, row: object) -> bool:
        return any(each == row for each in self)


def read_rows(path: str | Path, parse: Callable[[dict[str, Any]], Iterable[Row]], *, what: str) -> list[Row]:
    """Every row that `parse` makes of the file's objects, in their order; an object may hold none, which is counted.

    Raises BadInputError at the first bad row: training on a part of a file unawares is worse than stopping.
    `what`: plural, for messages.
    """
    return list(_parsed_rows(Path(path), parse, what, log.warning))


def _parsed_rows(
    path: Path, parse: Callable[[dict[str, Any]], Iterable[Row]], what: str, warn: Callable[..., None]
) -> Iterator[Row]:
    rows = without = 0
    for number, line in Lines(path):
        try:
            parsed = list(parse(parse_object(line)))
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
        except BadInputError as error:
            raise BadInputError(str(error), file=path, row=number) from error
        without += not parsed
        rows += len(parsed)
        yield from parsed
    if not rows:
        raise BadInputError(f"holds no {what}", file=path)
    if without:
        warn("%s: skipped %d rows without %s", path, without, what)


def number_of(value: object, field: str) -> float:
    """A finite number. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        raise RowError("not a number", field=field)
    return float(value)
