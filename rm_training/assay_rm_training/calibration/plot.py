"""The reliability diagram as text, one line per bin. Leaves out: the chart (`assay report RUN`)."""

from __future__ import annotations

from collections.abc import Sequence

from assay_rm_training.calibration.measures import Bin

WIDTH = 41  # columns from 0 to 1


def reliability_lines(bins: Sequence[Bin]) -> list[str]:
    """One line per bin, its range first: `o` observed, `|` predicted, `*` both in one column, then the count of
    pairs."""
    lines = []
    for part in bins:
        row = [" "] * WIDTH
        predicted, observed = (round(value * (WIDTH - 1)) for value in (part.predicted, part.observed))
        row[predicted] = "|"
        row[observed] = "*" if observed == predicted else "o"
        text = "".join(row)
        lines.append(
            f"{part.low:.1f}-{part.high:.1f} [{text}] {part.predicted:.3f} said, {part.observed:.3f} won, {part.pairs}"
        )
    return lines
