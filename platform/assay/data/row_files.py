"""Typed rows of a JSON Lines file, all or none: what training reads directly, without a workspace.

Covers: naming file, row and field at the first bad row; rows that hold nothing of the kind, counted in a warning.
Leaves out: what the rows mean (each reader's), files whose good rows are to be taken (`assay data import`).
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from assay.data.json_lines import Lines, RowError, parse_object
from assay.errors import BadInputError

log = logging.getLogger(__name__)
Row = TypeVar("Row")


def read_rows(path: str | Path, parse: Callable[[dict[str, Any]], Iterable[Row]], *, what: str) -> list[Row]:
    """Every row that `parse` makes of the file's objects, in their order; an object may hold none, which is counted.

    Raises BadInputError at the first bad row: training on a part of a file unawares is worse than stopping.
    `what`: plural, for messages.
    """
    path = Path(path)
    rows: list[Row] = []
    without = 0
    for number, line in Lines(path):
        try:
            parsed = list(parse(parse_object(line)))
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
        except BadInputError as error:
            raise BadInputError(str(error), file=path, row=number) from error
        without += not parsed
        rows += parsed
    if not rows:
        raise BadInputError(f"holds no {what}", file=path)
    if without:
        log.warning("%s: skipped %d rows without %s", path, without, what)
    return rows


def number_of(value: object, field: str) -> float:
    """A finite number. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        raise RowError("not a number", field=field)
    return float(value)
