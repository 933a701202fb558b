"""Steps of a solution and their labels: places in the joined text, one scale for all labels of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import rated_value
from assay_pipelines.importers.rows import mark

SIGNED, PROBABILITY = (-1.0, 1.0), (0.0, 1.0)  #: the scales of labels: 1 correct, 0 neutral, -1 wrong; or a chance


@dataclass(frozen=True)
class SolutionSteps:
    """`starts`: of each step in the response."""

    texts: Sequence[str]
    response: str
    starts: Sequence[int]

    @classmethod
    def joined(cls, texts: Sequence[str], separator: str) -> SolutionSteps:
        """The response is the steps with the separator between them."""
        starts = accumulate((len(text) + len(separator) for text in texts), initial=0)
        return cls(texts, separator.join(texts), list(starts)[:-1])

    @classmethod
    def within(cls, texts: Sequence[str], response: str, field: str) -> SolutionSteps:
        """Raises RowError for a step that is not in the response, after the one before it."""
        starts, at = [], 0
        for text in texts:
            at = response.find(text, at)
            if at < 0:
                raise RowError("a step that is not in the response", field=field)
            starts.append(at)
            at += len(text)
        return cls(texts, response, starts)

    def marks(
        self,
        labels: Sequence[object],
        *,
        field: str,
        voter: str | None = None,
        kind: str = "source",
        signed: bool = False,
    ) -> list[dict[str, Any]]:
        """A mark for each step that has a label (None: has none). 0 and 1 alone are wrong and correct; with -1 among
        them, 0 is neutral; other numbers from 0 to 1 are probabilities. `signed`: 0 is always neutral. Raises RowError
        for anything else."""
        values = [rated_value(label, field) for label in labels]
        numbers = {float(number) for number in values if number is not None}
        words = not signed and numbers <= {0.0, 1.0}
        scale = SIGNED if words or numbers <= {-1.0, 0.0, 1.0} else PROBABILITY
        if scale is PROBABILITY and not all(0 <= number <= 1 for number in numbers):
            raise RowError("labels that are neither -1, 0, 1 nor probabilities", field=field)
        marks = []
        for number, (text, start, value) in enumerate(zip(self.texts, self.starts, values, strict=False)):
            if value is not None:
                on_scale = (1.0 if value else -1.0) if words else float(value)
                end = start + len(text)
                marks.append(mark(start, end, step=number, value=on_scale, scale=scale, voter=voter, kind=kind))
        return marks
