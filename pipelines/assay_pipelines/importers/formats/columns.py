"""Columns that several layouts share: optional texts, labels, strengths, scores and metadata of untrusted records."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from assay.annotation.verdict_wording import verdict_of_wording
from assay.data.conversation import check_unicode
from assay.data.json_lines import RowError
from assay_pipelines.importers.rows import Row

_MODEL_NAME = re.compile(
    r"gpt|claude|llama|gemini|gemma|mi[sx]tral|qwen|deepseek|command-r|palm|judge|llm|prometheus|opus|sonnet|model|reward",
    re.IGNORECASE,
)
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_LEADING_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?![\w.])")
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
    """A column as text, as `text_or_none` does."""
    return text_or_none(record.get(name), name)


def text_or_none(value: object, field: str) -> str | None:
    """A single value as text; null, the empty text, NaN and infinities are None. Raises RowError for others."""
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, dict | list):
        raise RowError("wrong type: not a single value", field=field)
    text = str(value)
    check_unicode(text, field)
    return text


def origin_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Where a row is from, by the columns `id`, `source`, `category`, `license` and `language` (or `lang`)."""
    language = optional_text(record, "language") or optional_text(record, "lang")
    about = {name: optional_text(record, name) for name in ("source", "category", "license")}
    return {"record_id": optional_text(record, "id"), "language": language, **about}


def vote(
    kind: str, voter: str, label: str, *, strength: int | None = None, rationale: str | None = None
) -> dict[str, Any]:
    """One annotator's vote on a pair, as `PairRow` has them."""
    return {"kind": kind, "voter": voter, "label": label, "strength": strength, "rationale": rationale}


def label_of(value: object, field: str) -> str | None:
    """A label in any common spelling, or in a judge's own words ("Candidate 2 is better"), relative to the order of the
    record; None where there is none.

    Numbers are refused: 1 is the first response in some files and the second in others (0/1), and reading them wrongly
    would invert every label.
    """
    if value is None or value == "":
        return None
    text = str(value).strip().lower()
    if isinstance(value, int | float) or text.lstrip("-").isdigit():
        reason = "a number does not say which response it means: write A, B or tie, or give --values"
        raise RowError(reason, field=field)
    label = LABEL_SPELLINGS.get(text) or verdict_of_wording(str(value))
    if label is None:
        raise RowError("not a label (A, B, tie, both_good, both_bad, skip)", field=field)
    return label


def kind_of_annotator(name: str) -> str:
    """The AnnotatorKind that a name suggests: a model's or judge's, else a person's."""
    return "llm" if _MODEL_NAME.search(name) else "human"


def rated_value(value: object, field: str) -> float | bool | None:
    """A rating: a number, a truth value in words, a number with words after it ("2 Not relevant"); None where there is
    none. Raises RowError for anything else, NaN too."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if not text or text in ("n/a", "na", "none"):
            return None
        if text in _WORDS:
            return _WORDS[text]
        if (match := _LEADING_NUMBER.match(text)) is not None:
            return float(match[0])
    elif isinstance(value, int | float):
        if not math.isfinite(value):
            raise RowError("not a finite number", field=field)
        return float(value)
    raise RowError("not a number, yes or no", field=field)


def strength_of(value: object) -> int | None:
    """An integer 0-3, else None (the caller keeps it as metadata)."""
    number = number_of(value)
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


def required_number(value: object, field: str) -> float:
    """A finite number, also as text, or true and false as 1 and 0. Raises RowError."""
    number = float(value) if isinstance(value, bool) else number_of(value)
    if number is None:
        raise RowError("missing" if value is None else "not a number", field=field)
    return number


def strength_of_margin(margin: float, span: float) -> int:
    """A difference of two scores as the store's strength, 0-3: its share of the scale's `span` in thirds, rounded."""
    return round(3 * min(abs(margin) / span, 1.0))


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
