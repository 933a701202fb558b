"""TRL's preference forms, and any table that has been renamed to them by a column mapping.

Explicit and implicit prompts, plain and conversational; or `response_a`, `response_b` and `label`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import prompt_turns, split_pair, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import label_of, leftover_meta, optional_text, strength_of
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

#: The columns that are read; `--map` gives one of these names to a column of another name.
TARGETS = frozenset(
    {
        "prompt",
        "system",
        "chosen",
        "rejected",
        "response_a",
        "response_b",
        "label",
        "completion",
        "id",
        "source",
        "category",
        "license",
        "language",
        "lang",
        "rationale",
        "strength",
        "margin",
        "annotator",
    }
)


_PAIR = frozenset({"prompt", "chosen", "rejected", "response_a", "response_b", "label", "completion"})


class TrlLayout(RecordLayout):
    """TRL's explicit and implicit pairs, and two responses with a label."""

    mappable = True

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"chosen", "rejected"} <= record.keys() or {"prompt", "response_a", "response_b"} <= record.keys()

    def title_of(self, record: Mapping[str, Any]) -> str:
        if "response_a" in record:
            return "labelled pairs (response_a, response_b, label)"
        return f"TRL pairs with an {'explicit' if record.get('prompt') is not None else 'implicit'} prompt"

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        return parse_pair(record)


class SkyworkLayout(RecordLayout):
    """Skywork-Reward-Preference-80K: complete conversations with the name of their source data set, no prompt."""

    title = "Skywork-Reward-Preference pairs"
    note = "v0.1 overlaps RewardBench: check contamination before training"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return record.keys() == {"chosen", "rejected", "source"} and isinstance(record["chosen"], list)

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        return parse_pair(record)


def parse_pair(record: Mapping[str, Any]) -> list[Row | RowError]:
    """The pair of one record in any of TRL's forms. Raises RowError for a record without one."""
    if "response_a" in record or "response_b" in record:
        turns = prompt_turns(record.get("prompt"))
        first = text_of(record.get("response_a"), "response_a")
        second = text_of(record.get("response_b"), "response_b")
        label = label_of(record.get("label"), "label")
    else:
        turns, first, second = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
        label = "first"
    pair = PairRow(turns, first, second, label)
    if not record.keys() <= _PAIR:
        _add_columns(pair, record)
    return [pair.check()]


def _add_columns(pair: PairRow, record: Mapping[str, Any]) -> None:
    """The columns beside prompt, responses and label."""
    if (system := optional_text(record, "system")) is not None and pair.turns[0]["role"] != "system":
        pair.turns = [{"role": "system", "content": system}, *pair.turns]
    pair.strength = strength_of(record.get("strength"))
    if pair.strength is None:
        pair.strength = strength_of(record.get("margin"))
    pair.meta = leftover_meta(record, TARGETS)
    if pair.strength is None:
        pair.meta |= {name: record[name] for name in ("strength", "margin") if record.get(name) not in (None, "")}
    pair.rationale = optional_text(record, "rationale")
    pair.source = optional_text(record, "source")
    pair.record_id = optional_text(record, "id")
    pair.category = optional_text(record, "category")
    pair.license = optional_text(record, "license")
    pair.language = optional_text(record, "language") or optional_text(record, "lang")
    pair.annotator = optional_text(record, "annotator")
