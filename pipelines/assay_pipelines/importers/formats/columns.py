"""Columns that several layouts share: optional texts, labels, strengths, scores and metadata of untrusted records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from assay.data.conversation import check_unicode
from assay.data.json_lines import RowError
from assay_pipelines.importers.rows import Row

META_CHARACTERS = 1000  #: longer texts in unknown columns are copies of the conversation: left in the file

LABEL_SPELLINGS: dict[str, str] = {
    **dict.fromkeys(("a", "first", "model_a", "response_a", "left", "chosen"), "first"),
    **dict.fromkeys(("b", "second", "model_b", "response_b", "right", "rejected"), "second"),
    **dict.fromkeys(("tie", "equal", "same"), "tie"),
    **dict.fromkeys(("both_good", "tie (bothgood)"), "both_good"),
    **dict.fromkeys(("both_bad", "bothbad", "tie (bothbad)"), "both_bad"),
    "skip": "skip",
}


def optional_text(record: Mapping[str, Any], name: str) -> str | None:
    """A column as text; null, absent and empty are None, numbers are written out. Raises RowError."""
    value = record.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, dict | list):
        raise RowError("wrong type: not a single value", field=name)
    text = str(value)
    check_unicode(text, name)
    return text


def label_of(value: object, field: str) -> str | None:
    """A label in any common spelling, relative to the order of the record; None where there is none.

    Numbers are refused: 1 is the first response in some files and the second in others (0/1), and reading them wrongly
    would invert every label.
    """
    if value is None or value == "":
        return None
    text = str(value).strip().lower()
    if isinstance(value, int | float) or text.lstrip("-").isdigit():
        raise RowError("a number does not say which response it means: write A, B or tie", field=field)
    if text not in LABEL_SPELLINGS:
        raise RowError("not a label (A, B, tie, both_good, both_bad, skip)", field=field)
    return LABEL_SPELLINGS[text]


def strength_of(value: object) -> int | None:
    """An integer 0-3, else None (the caller keeps it as metadata)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number in (0.0, 1.0, 2.0, 3.0) else None


def number_of(value: object) -> float | None:
    """A finite number, also one written as text ("4", "4.5"); None for anything else, such as "N/A"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def strength_of_margin(margin: float, span: float) -> int:
    """A difference of two scores as the store's strength, 0-3: its share of the scale's `span` in thirds, rounded."""
    return min(3, round(3 * abs(margin) / span))


def label_of_scores(first: float, second: float) -> str:
    if first == second:
        return "tie"
    return "first" if first > second else "second"


def list_of(value: object, field: str) -> list[Any]:
    """A list with entries. Raises RowError."""
    if not isinstance(value, list | tuple):
        raise RowError("missing" if value is None else "wrong type: not a list", field=field)
    if not value:
        raise RowError("empty", field=field)
    return list(value)


@contextmanager
def rejecting(out: list[Row | RowError], part: str) -> Iterator[None]:
    """Add the RowError that the block raises to `out`, as one of this part of the record."""
    try:
        yield
    except RowError as error:
        error.detail = part
        out.append(error)


def leftover_meta(record: Mapping[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    """The other columns, if they are single values; messages and long texts stay in the file."""
    return {
        name: value
        for name, value in record.items()
        if name not in columns
        and value is not None
        and not isinstance(value, dict | list | bytes)
        and not (isinstance(value, str) and (not value or len(value) > META_CHARACTERS))
    }
