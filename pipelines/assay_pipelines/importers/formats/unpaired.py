"""TRL's unpaired preference (prompt, completion, label true/false): every preferred with every rejected completion of
a prompt, joined by `joining`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import Turns, prompt_turns, text_of, turns_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import RatedCompletion


class UnpairedLayout(JoinedLayout):
    """TRL unpaired preference."""

    mappable = True
    completion_field, label_field = "completion", "label"
    unmatched = "no completion of the same prompt with the opposite label"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"prompt", "completion", "label"} <= record.keys()

    def completions(self, record: Mapping[str, Any]) -> list[RatedCompletion]:
        turns = prompt_turns(record.get("prompt"))
        completion = record.get("completion")
        if isinstance(completion, list):
            messages: Turns = turns_of(completion, "completion")
            if len(messages) != 1 or messages[0]["role"] != "assistant":
                raise RowError("not one message of the assistant", field="completion")
            completion = messages[0]["content"]
        text = text_of(completion, "completion")
        return [RatedCompletion(turns, "", text, truth_of(record.get("label"), "label"))]


def truth_of(value: object, field: str) -> bool:
    """true/false in any common spelling. Raises RowError."""
    if isinstance(value, str):
        value = {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower())
    if not isinstance(value, bool) and value not in (0, 1):
        raise RowError("not true or false", field=field)
    return bool(value)
