"""verl's rows that Assay exported: their `extra_info.comparisons` carries the pairs; all others are rejected.

verl's data for reward models (prompt, chosen, rejected) is read as TRL's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import optional_text, rejecting, strength_of
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row


class VerlLayout(RecordLayout):
    """Verl rows with comparisons."""

    title = "verl rows with comparisons"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"data_source", "prompt", "reward_model"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        extra_info = record.get("extra_info")
        comparisons = extra_info.get("comparisons") if isinstance(extra_info, dict) else None
        if not isinstance(comparisons, list) or not comparisons:
            raise RowError(
                "no pair: a prompt with its ground truth (pairs are in the comparisons of Assay's own export)",
                field="extra_info",
            )
        turns = prompt_turns(record.get("prompt"))
        out: list[Row | RowError] = []
        for number, comparison in enumerate(comparisons):
            with rejecting(out, f"comparison {number}"):
                if not isinstance(comparison, dict):
                    raise RowError("a comparison that is no object", field="extra_info")
                pair = PairRow(
                    turns,
                    text_of(comparison.get("chosen"), "extra_info"),
                    text_of(comparison.get("rejected"), "extra_info"),
                    "first",
                    strength=strength_of(comparison.get("margin")),
                    source=optional_text(comparison, "source") or optional_text(record, "data_source"),
                    record_id=optional_text(comparison, "comparison_id"),
                    category=optional_text(comparison, "category"),
                )
                out.append(pair.check(("extra_info", "extra_info")))
        return out
