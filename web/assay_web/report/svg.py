"""SVG elements for the charts: built as an element tree, so that text is escaped.

Covers: the drawing surface with its description for screen readers, axes, and marks with hover titles. Colours
are CSS classes (`s0` to `s5`, `axis`, `grid`, ...) of the report's style sheet, which knows light and dark. Leaves
out: which marks make a chart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from assay_web.report.axis import LinearScale, format_value
from assay_web.report.content import Table

WIDTH = 460  #: drawing units; about one CSS pixel each on a phone, so 12 units of text stay readable
LEFT, RIGHT, TOP, BOTTOM = 50, 16, 12, 40  # margins
COLOURS = 6
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class ChartSvg:
    """A chart ready for the page: its SVG text (None = there was nothing to draw), its key, and its numbers."""

    svg: str | None
    legend: tuple[tuple[str, str], ...]  #: (CSS class, name)
    table: Table


def printable(text: str) -> str:
    """`text` without the characters that no XML or HTML document may hold."""
    return _NOT_XML.sub("\ufffd", text)


def colour(index: int) -> str:
    return f"s{index % COLOURS}"


class Canvas:
    """An SVG root of `WIDTH` by `height` units, with title and description for assistive technology."""

    def __init__(self, key: str, height: float, title: str, description: str) -> None:
        self.height = height
        self.root = ElementTree.Element(
            "svg",
            {
                "viewBox": f"0 0 {WIDTH} {height:g}",
                "role": "img",
                "aria-labelledby": f"{key}-title {key}-desc",
            },
        )
        ElementTree.SubElement(self.root, "title", {"id": f"{key}-title"}).text = printable(title)
        ElementTree.SubElement(self.root, "desc", {"id": f"{key}-desc"}).text = printable(description)

    def add(self, tag: str, css: str, hover: str = "", **attributes: float | str) -> ElementTree.Element:
        """One element; `hover` becomes its tooltip. Underscores in attribute names stand for hyphens."""
        plain = {
            name.replace("_", "-"): value if isinstance(value, str) else f"{value:g}"
            for name, value in attributes.items()
        }
        element = ElementTree.SubElement(self.root, tag, {"class": css, **plain})
        if hover:
            ElementTree.SubElement(element, "title").text = printable(hover)
        return element

    def text(self, x: float, y: float, text: str, css: str = "label", anchor: str = "start", hover: str = "") -> None:
        element = self.add("text", css, x=x, y=y, text_anchor=anchor)
        element.text = printable(text)
        if hover:
            title = ElementTree.SubElement(element, "title")
            title.text = printable(hover)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str, hover: str = "") -> None:
        self.add("line", css, hover, x1=x1, y1=y1, x2=x2, y2=y2)

    def rect(self, x: float, y: float, width: float, height: float, css: str, hover: str = "") -> None:
        self.add("rect", css, hover, x=x, y=y, width=max(0.0, width), height=max(0.0, height))

    def path(self, points: Sequence[tuple[float, float]], css: str, *, close: bool = False) -> None:
        steps = " ".join(f"{'L' if index else 'M'}{x:g} {y:g}" for index, (x, y) in enumerate(points))
        self.add("path", css, d=steps + ("Z" if close else ""))

    def x_axis(self, ticks: Sequence[float], scale: LinearScale, label: str, *, percent: bool = False) -> None:
        base = self.height - BOTTOM
        self.line(scale.start, base, scale.end, base, "axis")
        for tick in ticks:
            self.line(scale(tick), base, scale(tick), base + 4, "axis")
            self.text(scale(tick), base + 16, format_value(tick, percent=percent), "tick", "middle")
        if label:
            self.text((scale.start + scale.end) / 2, self.height - 6, label, "label", "middle")

    def y_axis(self, ticks: Sequence[float], scale: LinearScale, label: str, *, percent: bool = False) -> None:
        """Grid lines with numbers; the label is above the axis, horizontally."""
        for tick in ticks:
            self.line(LEFT, scale(tick), WIDTH - RIGHT, scale(tick), "grid")
            self.text(LEFT - 6, scale(tick) + 4, format_value(tick, percent=percent), "tick", "end")
        if label:
            self.text(2, scale.end - 10, label)

    def to_string(self) -> str:
        return ElementTree.tostring(self.root, encoding="unicode")
