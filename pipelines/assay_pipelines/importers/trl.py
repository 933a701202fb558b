"""TRL's preference forms, and any table that has been renamed to them by a column mapping.

Covers: explicit and implicit prompts, plain and conversational; two responses with a label (`response_a`,
`response_b`, `label`); further columns (id, source, category, strength, margin, ...). Leaves out: unpaired rows
(`unpaired`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import prompt_turns, split_pair, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.fields import label_of, leftover_meta, optional_text, strength_of
from assay_pipelines.importers.rows import PairRow, Row

#: The columns that mean something; `--map` gives one of these names to a column called otherwise.
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


def looks_trl(record: Mapping[str, Any]) -> bool:
    return {"chosen", "rejected"} <= record.keys() or {"prompt", "response_a", "response_b"} <= record.keys()


def looks_skywork(record: Mapping[str, Any]) -> bool:
    """Skywork-Reward-Preference-80K: whole conversations with the name of the set that each came from, no prompt."""
    return record.keys() == {"chosen", "rejected", "source"} and isinstance(record["chosen"], list)


def title_of(record: Mapping[str, Any]) -> str:
    if "response_a" in record:
        return "labelled pairs (response_a, response_b, label)"
    return f"TRL pairs with an {'explicit' if record.get('prompt') is not None else 'implicit'} prompt"


def parse_trl(record: Mapping[str, Any]) -> list[Row | RowError]:
    """Raises RowError for a row that is no pair."""
    if "response_a" in record or "response_b" in record:
        turns = prompt_turns(record.get("prompt"))
        first = text_of(record.get("response_a"), "response_a")
        second = text_of(record.get("response_b"), "response_b")
        label = label_of(record.get("label"), "label")
    else:
        turns, first, second = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
        label = "first"
    if (system := optional_text(record, "system")) is not None and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": system}, *turns]
    strength = strength_of(record.get("strength"))
    if strength is None:
        strength = strength_of(record.get("margin"))
    meta = leftover_meta(record, TARGETS)
    if strength is None:
        meta |= {name: record[name] for name in ("strength", "margin") if record.get(name) not in (None, "")}
    pair = PairRow(
        turns,
        first,
        second,
        label,
        strength=strength,
        rationale=optional_text(record, "rationale"),
        source=optional_text(record, "source"),
        record_id=optional_text(record, "id"),
        category=optional_text(record, "category"),
        license=optional_text(record, "license"),
        language=optional_text(record, "language") or optional_text(record, "lang"),
        meta=meta,
        annotator=optional_text(record, "annotator"),
    )
    return [pair.check()]
