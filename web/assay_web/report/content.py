"""What a report consists of: sections of figures, charts, tables, samples, texts and commands.

Covers: immutable descriptions of content. A number that is missing is None (NaN and infinities are treated the
same): it is drawn as a gap and printed as a dash, never as zero. All text is plain; the renderer escapes it.
Leaves out: drawing (`charts`), HTML (`render`), and where the numbers come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Number: TypeAlias = float | int | None
Cell: TypeAlias = str | float | int | None


@dataclass(frozen=True, slots=True)
class Series:
    """One named row of numbers. `x` is used by line charts only; `low`/`high` bound an interval around each `y`."""

    name: str
    y: Sequence[Number]
    x: Sequence[float] | None = None  #: default 0, 1, 2, ...
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None

    def __post_init__(self) -> None:
        for name in ("x", "low", "high"):
            other = getattr(self, name)
            if other is not None and len(other) != len(self.y):
                raise ValueError(f"series {self.name!r}: {len(other)} values in {name}, {len(self.y)} in y")

    @property
    def positions(self) -> list[float]:
        """Along the axis of a line chart."""
        return [float(x) for x in (range(len(self.y)) if self.x is None else self.x)]

    @property
    def columns(self) -> dict[str, Sequence[Number]]:
        """Its numbers by the headings of a table."""
        named = {self.name: self.y, f"{self.name}, low": self.low, f"{self.name}, high": self.high}
        return {name: values for name, values in named.items() if values is not None}


@dataclass(frozen=True, slots=True)
class LineChart:
    """Curves over a shared horizontal axis."""

    title: str
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    note: str = ""
    percent: bool = False  #: show 0.25 as 25 %
    reference: float | None = None  #: a horizontal line to compare with


@dataclass(frozen=True, slots=True)
class BarChart:
    """Grouped horizontal bars, one group a label and one bar a series, with whiskers where a series has bounds."""

    title: str
    labels: Sequence[str]
    series: Sequence[Series]
    x_label: str = ""
    note: str = ""
    percent: bool = False
    reference: float | None = None  #: a vertical line to compare with, such as chance


@dataclass(frozen=True, slots=True)
class FunnelStage:
    """What is left after one step of a funnel, and why the rest went: reason -> count."""

    name: str
    count: int
    dropped: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class FunnelChart:
    """Counts that shrink from stage to stage; the first stage is the whole."""

    title: str
    stages: Sequence[FunnelStage]
    note: str = ""


@dataclass(frozen=True, slots=True)
class DiagramBin:
    """One bin of a reliability diagram. `predicted` and `observed` are means over the bin, None when it is empty."""

    predicted: Number
    observed: Number
    count: int


@dataclass(frozen=True, slots=True)
class Reliability:
    """Predicted probability against observed frequency; a calibrated model lies on the diagonal."""

    title: str
    bins: Sequence[DiagramBin]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings. Numbers are aligned right; a float is shown with four significant digits."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """One headline number with its unit and what it is compared with."""

    label: str
    value: Cell
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """A row of headline numbers."""

    figures: Sequence[Headline]


@dataclass(frozen=True, slots=True)
class Sample:
    """Text to read: a prompt with responses, say. `parts` are (label, text); `tags` are short marks."""

    title: str
    parts: Sequence[tuple[str, str]]
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples, folded so that many of them stay short."""

    samples: Sequence[Sample]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Shell commands, one a line, to be copied."""

    lines: Sequence[str]
    title: str = ""


Chart: TypeAlias = LineChart | BarChart | FunnelChart | Reliability
Block: TypeAlias = Chart | Table | Figures | Samples | Text | Commands


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, one sentence that says what to see, and blocks."""

    title: str
    blocks: Sequence[Block]
    intro: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    sections: Sequence[Section]
    subtitle: str = ""
