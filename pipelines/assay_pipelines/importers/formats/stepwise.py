"""TRL's stepwise supervision (prompt, completions[], labels[]): labels of the steps, and pairs that differ in one step.

Covers: the steps of any solution with their places in the joined text and one scale for all labels of a record. A label
is true or false; 1, 0 (neutral) or -1; or a probability. For pairs, each step up to and including the first false one
is a rated continuation of the correct steps before it; steps after it build on an error and make no pair. A pair needs
two rows that continue the same prompt and the same steps, one correctly and one wrongly (`joining`). Steps are joined
by line breaks, as TRL's PRMTrainer does by default, or stand in the whole `response`, as Assay exports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import leftover_meta, list_of, optional_text, origin_of, rated_value
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import RatedCompletion, RatedRow, Row, mark

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


SEPARATOR = "\n"
_KNOWN = frozenset({"prompt", "completions", "labels", "id", "source", "category", "license", "language", "response"})


class StepwiseLayout(JoinedLayout):
    """TRL stepwise supervision."""

    completion_field, label_field = "completions", "labels"

    def matches(self, record: Mapping[str, Any]) -> bool:
        steps = record.get("completions")
        return (
            "prompt" in record
            and isinstance(record.get("labels"), list)
            and isinstance(steps, list)
            and all(isinstance(step, str) for step in steps)
        )

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        solution, marks = _labelled(record)
        row = RatedRow(
            prompt_turns(record.get("prompt")),
            solution.response,
            marks=marks,
            meta=leftover_meta(record, _KNOWN),
            **origin_of(record),
        )
        return [row]

    def completions(self, record: Mapping[str, Any]) -> list[RatedCompletion]:
        """Without those of steps that are neither plainly right nor plainly wrong."""
        turns = prompt_turns(record.get("prompt"))
        solution, marks = _labelled(record)
        values = {mark["step"]: mark["value"] for mark in marks if mark["low"] == -1.0}
        out: list[RatedCompletion] = []
        for number, (step, start) in enumerate(zip(solution.texts, solution.starts, strict=True)):
            if (value := values.get(number, 0.0)) not in (1.0, -1.0):
                break
            out.append(RatedCompletion(turns, solution.response[:start], step, float(value > 0)))
            if value < 0:
                break
        return out


def _labelled(record: Mapping[str, Any]) -> tuple[SolutionSteps, list[dict[str, Any]]]:
    steps, labels = (list_of(record.get(name), name) for name in ("completions", "labels"))
    if len(steps) != len(labels):
        raise RowError("not one label for each of the completions", field="labels")
    texts = [text_of(step, "completions") for step in steps]
    whole = optional_text(record, "response")
    solution = SolutionSteps.joined(texts, SEPARATOR)
    if whole is not None:
        solution = SolutionSteps.within(texts, whole, "completions")
    return solution, solution.marks(labels, field="labels")
