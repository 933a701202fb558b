"""Tables of a run: what `assay measure` measured, the best of m of `assay decode`, the rates of `assay attack`, what a
policy's evaluation came to, and what the uncertainty of a reward model is worth.

Leaves out: single figures, which are listed beside the settings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.runs.evaluation_table import HEAD, evaluation_tables
from assay_rm_training.attacks.rates import BASELINE
from assay_web.runs.replies import RunTable

MOST_ROWS = 200
#: Columns of `assay attack` by their name on the page, each with the ends of its interval.
RATES = {
    "fooled, 95 %": ("rate", "low", "high"),
    "above baseline, 95 %": ("above_baseline", "above_low", "above_high"),
    "any variant": ("any_variant",),
    "accepted": ("accepted",),
}
THIRDS = ("by", "surest", "middle", "least sure", "surest less least sure, 95 %")


def tables_of(results: Mapping[str, Any]) -> list[RunTable]:
    """Of a run's results, the measure's own table first; of a longer one the first rows, which the title says."""
    tables: list[RunTable] = []
    for key in ("attacks", "variants"):
        if "attacks" in results and results.get(key):
            tables.append(_attacks(key, results[key]))
    if {"measure", "decoder"} & results.keys():
        for key, rows in results.items():
            if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
                tables.append(_table(str(results["measure"]) if key == "table" else key, rows))
    for title, rows in evaluation_tables(results):
        tables.append(RunTable(title=title, head=list(HEAD), rows=[list(row) for row in rows]))
    for part in (results, results.get("evaluation")):  # of an evaluation, and of a training with one
        uncertainty = part.get("uncertainty") if isinstance(part, Mapping) else None
        if part and isinstance(uncertainty, Mapping) and "thirds" in uncertainty:
            tables.append(_thirds(uncertainty, part.get("accuracy")))
    return tables


def _attacks(title: str, rows: Sequence[Mapping[str, Any]]) -> RunTable:
    cells = []
    for row in rows[:MOST_ROWS]:
        figures = {**row, "above_baseline": None} if row["attack"] == BASELINE else row
        shares = [_share(*map(figures.get, names), signed=names[0] == "above_baseline") for names in RATES.values()]
        cells.append([str(row["attack"]), *shares, f"{row['judged']}/{row['responses']}"])
    return RunTable(title=title.capitalize(), head=["attack", *RATES, "judged"], rows=cells)


def _thirds(uncertainty: Mapping[str, Any], accuracy: Any) -> RunTable:
    rows = [
        [
            str(one["by"]),
            *(_share(value, *_ends(ends)) for value, ends in zip(one["accuracy"], one["intervals"], strict=True)),
            _share(one["difference"], *_ends(one["interval"]), signed=True),
        ]
        for one in uncertainty["thirds"]
    ]
    title = f"Accuracy by thirds of {uncertainty['pairs']} pairs"
    if isinstance(accuracy, Mapping):
        title += f"; of all {accuracy['value']:.3f}"
    return RunTable(title=title, head=list(THIRDS), rows=rows)


def _ends(interval: Mapping[str, float] | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval["low"], interval["high"])


def _share(value: float | None, *ends: float | None, signed: bool = False) -> str:
    """ "0.61 (0.52 to 0.70)", or its interval "undetermined"."""
    if value is None:
        return "-"
    form = "+.3f" if signed else ".3f"
    if not ends:
        return f"{value:{form}}"
    low, high = ends
    return f"{value:{form}} ({'undetermined' if low is None or high is None else f'{low:{form}} to {high:{form}}'})"


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> RunTable:
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in head] for row in rows[:MOST_ROWS]]
    part = f", {MOST_ROWS} of {len(rows)} rows" if len(rows) > MOST_ROWS else ""
    return RunTable(title=title.replace("_", " ") + part, head=head, rows=cells)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
