"""Numbers on an axis: which values are present, round ticks, linear scales, and how a number is written.

Leaves out: drawing. Logarithmic axes are not offered: every chart of a report so far reads well without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from assay_web.report.content import Cell, Number

MISSING = "–"
_TINY = 1e-200  # nothing that is measured is smaller, and steps between smaller numbers underflow


def finite_or_none(value: Number) -> float | None:
    """The value as a finite float, None when there is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def finite_values(values: Iterable[Number]) -> list[float]:
    return [number for value in values if (number := finite_or_none(value)) is not None]


def format_value(value: Cell, *, percent: bool = False) -> str:
    """Text as it is, whole numbers with thousands separators, other numbers with four significant digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    number = finite_or_none(value)
    if number is None:
        return MISSING
    if percent:
        return f"{_plain(number * 100, 3)} %"
    if isinstance(value, int):
        return f"{value:,}"
    return _plain(number, 4)


def _plain(number: float, digits: int) -> str:
    if number != 0 and not 1e-4 <= abs(number) < 1e9:
        mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = digits - 1 - (math.floor(math.log10(abs(number))) if number else 0)
    text = f"{number:,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Ascending multiples of 1, 2 or 5 times a power of ten; the first is <= `low`, the last >= `high`."""
    largest = max(abs(low), abs(high))
    if high - low <= 1e-9 * largest or largest < _TINY:  # flat as far as an axis can tell
        pad = 0.1 * largest if largest >= _TINY else 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = 1 - math.floor(math.log10(step))  # takes off what binary floats add to 3 * 0.1
    return [round(index * step, digits) for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LinearScale:
    """A linear map from [low, high] in data to [start, end] in drawing units."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 2)
