"""Rows of JSON Lines that are stored as they come and found again: an interrupted command resumes where it stopped.

Leaves out: the file's name, which says what determines its rows.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.runs.json_log import JsonLog
from assay.system.name_lock import locked_name


@contextmanager
def stored_rows(
    path: Path, keep: Callable[[Mapping[str, Any]], bool] = lambda row: True
) -> Iterator[tuple[list[dict[str, Any]], JsonLog]]:
    """The file's rows, and the log that adds to them. Those not to `keep`, and a line that an interruption cut off, are
    gone from the file. Raises BadInputError where another process writes it."""
    with locked_name(path, hint="wait for it: it is then read"):
        log = JsonLog(path)
        rows = [row for row in log.rows() if keep(row)]
        log.replace(rows)
        yield rows, log
