"""TRL's stepwise supervision (prompt, completions[], labels[]) to pairs that share their steps and differ in the next.

Each step up to and including the first false one is a rated continuation of the correct steps before it; steps after a
false one build on an error and are not used. A pair needs two rows that continue the same prompt and the same steps,
one correctly and one wrongly (`joining`). Steps are joined by line breaks, as TRL's PRMTrainer does by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.unpaired import truth_of
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import RatedCompletion

SEPARATOR = "\n"


class StepwiseLayout(JoinedLayout):
    """TRL stepwise supervision."""

    completion_field, label_field = "completions", "labels"
    unmatched = "no other row continues the same steps with the opposite label"

    def matches(self, record: Mapping[str, Any]) -> bool:
        steps = record.get("completions")
        return (
            "prompt" in record
            and isinstance(record.get("labels"), list)
            and isinstance(steps, list)
            and all(isinstance(step, str) for step in steps)
        )

    def completions(self, record: Mapping[str, Any]) -> list[RatedCompletion]:
        turns = prompt_turns(record.get("prompt"))
        steps, labels = record.get("completions"), record.get("labels")
        for column, field in ((steps, "completions"), (labels, "labels")):
            if not isinstance(column, list) or not column:
                raise RowError("not a list with entries", field=field)
        assert isinstance(steps, list)
        assert isinstance(labels, list)
        if len(steps) != len(labels):
            raise RowError("not one label for each of the completions", field="labels")
        out: list[RatedCompletion] = []
        stem = ""
        for step, label in zip(steps, labels, strict=True):
            text, right = text_of(step, "completions"), truth_of(label, "labels")
            out.append(RatedCompletion(turns, stem, text, right))
            if not right:
                break
            stem += text + SEPARATOR
        return out
