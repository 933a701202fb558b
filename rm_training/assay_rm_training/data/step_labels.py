"""Responses split into labelled steps, the training rows of process reward models.

Covers: JSON Lines rows {prompt, steps, labels} (TRL's stepwise form says `completions` for the steps), with Monte-Carlo
labels as the counts they come from (Math-Shepherd, arXiv 2312.08935, from memory). Leaves out: other formats,
sampling continuations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay.data.row_files import number_of, read_rows
from assay.domain import Prompt, prompt_of
from assay.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class SteppedResponse:
    """`labels`: P(step is right), 0 to 1, None where it was not labelled; one for each step."""

    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    weight: float = 1.0
    source: str = ""
    category: str = ""


def load_steps(data: str | Path) -> list[SteppedResponse]:
    """Rows of a file. Raises NotFoundError for no file, BadInputError naming file, row and field."""
    path = Path(data).expanduser()
    if not path.is_file():
        raise NotFoundError(f"no such file: {data} (step labels are read from files; a snapshot holds comparisons)")
    return read_rows(path, _parse, what="labelled steps")


def _parse(record: dict[str, Any]) -> list[SteppedResponse]:
    field = "completions" if "completions" in record else "steps"
    steps, labels = record.get(field), record.get("labels")
    if not isinstance(steps, list) or not steps:
        raise RowError("not a list of at least one step", field=field)
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise RowError("not one label for each step", field="labels")
    values = tuple(_label(label) for label in labels)
    if all(value is None for value in values):
        return []
    texts = tuple(text_of(step, field) for step in steps)
    if any(not text.strip() for text in texts):
        raise RowError("a step of white space only", field=field)
    return [
        SteppedResponse(
            prompt_of(prompt_turns(record.get("prompt"))),
            texts,
            values,
            source=str(record.get("source") or ""),
            category=str(record.get("category") or ""),
        )
    ]


def _label(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return _share_right(value)
    number = float(value) if isinstance(value, bool) else number_of(value, "labels")
    if not 0 <= number <= 1:
        raise RowError("a label is true, false, null, a number from 0 to 1, or {correct, tried}", field="labels")
    return number


def _share_right(counts: dict[str, Any]) -> float:
    """Soft label of a step: the share of `correct` among `tried` sampled continuations."""
    correct, tried = counts.get("correct"), counts.get("tried")
    if type(correct) is not int or type(tried) is not int or not 0 <= correct <= tried or tried == 0:
        raise RowError("not {correct, tried}: counts with 0 <= correct <= tried and tried > 0", field="labels")
    return correct / tried
