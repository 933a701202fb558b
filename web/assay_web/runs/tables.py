"""Tables of a run: what `assay measure` measured, the best of m of `assay decode`, the rates of `assay attack`, what a
policy's evaluation came to.

Leaves out: single figures, which are listed beside the settings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.runs.evaluation_table import HEAD, evaluation_tables
from assay_web.runs.replies import RunTable

MOST_ROWS = 200


def tables_of(results: Mapping[str, Any]) -> list[RunTable]:
    """Of a run's results, the measure's own table first; of a longer one the first rows, which the title says."""
    tables: list[RunTable] = []
    if {"measure", "decoder", "attacks"} & results.keys():
        for key, rows in results.items():
            if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
                tables.append(_table(str(results["measure"]) if key == "table" else key, rows))
    for title, rows in evaluation_tables(results):
        tables.append(RunTable(title=title, head=list(HEAD), rows=[list(row) for row in rows]))
    return tables


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> RunTable:
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in head] for row in rows[:MOST_ROWS]]
    part = f", {MOST_ROWS} of {len(rows)} rows" if len(rows) > MOST_ROWS else ""
    return RunTable(title=title.replace("_", " ") + part, head=head, rows=cells)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
