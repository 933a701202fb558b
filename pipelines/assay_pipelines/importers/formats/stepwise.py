"""TRL's stepwise supervision (prompt, completions[], labels[]): labels of the steps, and pairs that differ in one step.

A label is true or false; 1, 0 (neutral) or -1; or a probability. For pairs, each step up to and including the first
false one is a rated continuation of the correct steps before it; steps after it build on an error and make no pair. A
pair needs two rows that continue the same prompt and the same steps, one correctly and one wrongly (`joining`). Steps
are joined by line breaks, as TRL's PRMTrainer does by default, or stand in the whole `response`, as Assay exports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import leftover_meta, list_of, optional_text, origin_of
from assay_pipelines.importers.formats.solution_steps import SolutionSteps
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import RatedCompletion, RatedRow, Row

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
