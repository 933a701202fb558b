"""Downsampling of a growing metrics file in bounded memory: one row per point at first, then ever more.

Covers: means, bounds and last steps per bucket; the bucket width doubles when there would be too many points.
Leaves out: reading the file (`metrics_reader`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay_web.run_charts import Extent

POINTS = 2000  #: maximum; a long file has between half of it and all
MOST_KEYS = 400  #: metrics that are kept; a page draws far fewer

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Points from number `first` on. `width`: rows per point. Gaps are NaN."""

    first: int
    width: int
    step: Array
    mean: Mapping[str, Array]
    low: Mapping[str, Array]
    high: Mapping[str, Array]


class _Column:
    """Sums, counts and bounds of one metric, by point."""

    def __init__(self) -> None:
        self.sum, self.count = np.zeros(POINTS), np.zeros(POINTS)
        self.low, self.high = np.full(POINTS, np.inf), np.full(POINTS, -np.inf)
        self.rows, self.bounds = 0, (np.inf, -np.inf)

    def add(self, places: npt.NDArray[np.int64], values: Array) -> None:
        finite = np.isfinite(values)
        places, values = places[finite], values[finite]
        if not len(values):
            return
        np.add.at(self.sum, places, values)
        np.add.at(self.count, places, 1.0)
        np.minimum.at(self.low, places, values)
        np.maximum.at(self.high, places, values)
        self.rows += len(values)
        self.bounds = (min(self.bounds[0], float(values.min())), max(self.bounds[1], float(values.max())))

    def halve(self) -> None:
        for array, join, empty in (
            (self.sum, np.add, 0.0),
            (self.count, np.add, 0.0),
            (self.low, np.minimum, np.inf),
            (self.high, np.maximum, -np.inf),
        ):
            joined = join(array[0::2], array[1::2])
            array[:] = empty
            array[: len(joined)] = joined


class Buckets:
    """Rows in file order, with ascending steps."""

    def __init__(self) -> None:
        self.rows, self.width = 0, 1
        self._steps = np.zeros(POINTS)
        self._columns: dict[str, _Column] = {}

    def add(self, steps: Sequence[float], columns: Mapping[str, Array]) -> None:
        """Rows [N] that follow the ones before; each column is [N], NaN where a row lacks it."""
        while (self.rows + len(steps) - 1) // self.width >= POINTS:
            self._halve()
        places = (self.rows + np.arange(len(steps))) // self.width
        self._steps[places] = steps  # the last row of a bucket wins
        for key, values in columns.items():
            column = self._columns.get(key)
            if column is None:
                if len(self._columns) >= MOST_KEYS:
                    continue
                column = self._columns[key] = _Column()
            column.add(places, values)
        self.rows += len(steps)

    def extents(self) -> dict[str, Extent]:
        return {key: Extent(*c.bounds, c.rows) for key, c in self._columns.items() if c.rows}

    def points(self, keys: Sequence[str], *, known_rows: int = 0, known_width: int = 0) -> Points:
        """The points after those of `known_rows` rows, which the caller has at `known_width` rows per point."""
        first = known_rows // self.width if known_width == self.width else 0
        here = slice(first, -(-self.rows // self.width))
        mean: dict[str, Array] = {}
        low: dict[str, Array] = {}
        high: dict[str, Array] = {}
        for key in keys:
            column = self._columns.get(key)
            if column is None:
                continue
            count = column.count[here]
            mean[key] = np.divide(column.sum[here], count, out=np.full(len(count), np.nan), where=count > 0)
            if self.width > 1:
                low[key] = np.where(count > 0, column.low[here], np.nan)
                high[key] = np.where(count > 0, column.high[here], np.nan)
        return Points(first, self.width, self._steps[here].copy(), mean, low, high)

    def _halve(self) -> None:
        used = -(-self.rows // self.width)
        steps = np.zeros(POINTS)
        last = self._steps[1:used:2]
        steps[: len(last)] = last
        if used % 2:
            steps[len(last)] = self._steps[used - 1]
        self._steps = steps
        for column in self._columns.values():
            column.halve()
        self.width *= 2
