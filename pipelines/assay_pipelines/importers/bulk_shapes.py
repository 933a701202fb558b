"""Which rows of a file the bulk reader can take: their columns, in order, and how prompt and sides are written.

Covers: `Shape`, told from sample rows; one file has one or a few. Leaves out: the SQL made of a shape (`bulk_sql`),
rows of other shapes, which go to the row parser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay_pipelines.importers.trl import TARGETS

MAX_SHAPES = 4  #: a pass over the batch each
MIN_SHARE = 0.02  #: of the sample; a rarer shape is cheaper row by row
MESSAGE_KEYS = (("role", "content"), ("content", "role"))


@dataclass(frozen=True)
class Shape:
    """`columns`: the file's names in the order of the row. `meaning`: our name -> the file's; columns that a mapping
    hides are in neither `meaning` nor `extras`. `messages`: our name of a column of messages -> the order of their
    keys; the other one of prompt and sides is text."""

    columns: tuple[str, ...]
    meaning: tuple[tuple[str, str], ...]
    messages: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def named(self) -> dict[str, str]:
        return dict(self.meaning)

    @property
    def labelled(self) -> bool:
        """response_a, response_b and a label, rather than chosen and rejected."""
        return "response_a" in self.named

    @property
    def sides(self) -> tuple[str, str]:
        return ("response_a", "response_b") if self.labelled else ("chosen", "rejected")

    @property
    def extras(self) -> tuple[tuple[str, str], ...]:
        """Columns that nobody asked for: (name in the metadata, the file's name)."""
        return tuple((name, column) for name, column in self.meaning if name not in TARGETS)


def shapes_of(records: Iterable[Mapping[str, Any]], mapping: Mapping[str, str]) -> list[Shape]:
    """The commonest shapes of the sample, those only that the SQL can read exactly as the row parser does."""
    shapes = Counter(shape for record in records if (shape := shape_of(record, mapping)) is not None)
    total = sum(shapes.values())
    return [shape for shape, n in shapes.most_common(MAX_SHAPES) if n >= MIN_SHARE * total]


def shape_of(record: Mapping[str, Any], mapping: Mapping[str, str]) -> Shape | None:
    columns = tuple(record)
    if not all(map(_plain, columns)) or len({column.lower() for column in columns}) < len(columns):
        return None
    mapped_columns = set(mapping.values())
    column_of = {name: name for name in columns if name not in mapped_columns and name not in mapping}
    column_of |= {target: column for target, column in mapping.items() if column in record}
    sides = ("response_a", "response_b") if {"response_a", "response_b"} & column_of.keys() else ("chosen", "rejected")
    if not set(sides) <= column_of.keys():
        return None
    kinds = {name: _kind(record[column_of[name]]) for name in ("prompt", *sides) if name in column_of}
    if "prompt" not in kinds or kinds["prompt"] is None:  # an implicit prompt, which SQL finds in messages only
        if sides[0] == "response_a" or kinds["chosen"] == "text":
            return None
        kinds["prompt"] = "text"
    first, second = (kinds[side] for side in sides)
    if kinds["prompt"] not in ("text", *MESSAGE_KEYS) or first != second or first not in ("text", *MESSAGE_KEYS):
        return None
    if sides[0] == "response_a" and first != "text":
        return None
    messages = tuple((name, kind) for name, kind in kinds.items() if isinstance(kind, tuple))
    return Shape(columns, tuple(column_of.items()), messages)


def _kind(value: object) -> str | tuple[str, ...] | None:
    """`text`, the keys of the messages, None for null, or something that the SQL does not read."""
    if value is None:
        return None
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return tuple(value[0])
    return "other"


def _plain(column: str) -> bool:
    """A name that means the same in a JSON path, a JSON key, and an SQL identifier."""
    return column.isascii() and column.isprintable() and column != "" and not set(column) & set("\"'\\*")
