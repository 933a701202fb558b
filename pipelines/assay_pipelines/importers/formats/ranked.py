"""NeMo-RL's ranked lists: a context and completions with a rank each, the lowest the best; equal ranks are ties.

NeMo-RL's binary form is TRL's under other names: `--map prompt=... --map chosen=...`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from assay.data.conversation import prompt_turns, text_of, turns_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import (
    label_of_scores,
    leftover_meta,
    list_of,
    number_of,
    optional_text,
    rejecting,
)
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

_KNOWN = frozenset({"context", "completions", "task_name", "id", "source", "category", "margin", "strength"})


class RankedLayout(RecordLayout):
    """NeMo-RL ranked completions."""

    def matches(self, record: Mapping[str, Any]) -> bool:
        completions = record.get("completions")
        return (
            "context" in record
            and isinstance(completions, list)
            and all(isinstance(completion, dict) and "completion" in completion for completion in completions)
        )

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """All pairs of one record; a pair that cannot be one comes as its RowError."""
        turns = prompt_turns(record.get("context"), "context")
        completions = list_of(record.get("completions"), "completions")
        if len(completions) < 2:
            raise RowError("no pair: fewer than two completions", field="completions")
        ranks = [
            number_of(completion.get("rank")) if isinstance(completion, dict) else None for completion in completions
        ]
        out: list[Row | RowError] = []
        for i, j in combinations(range(len(completions)), 2):
            with rejecting(out, f"completions {i} and {j}"):
                one, two = ranks[i], ranks[j]
                if one is None or two is None:
                    raise RowError("a completion without a number as its rank", field="completions")
                pair = PairRow(
                    turns,
                    _text(completions[i]),
                    _text(completions[j]),
                    label_of_scores(-one, -two),
                    source=optional_text(record, "source"),
                    record_id=optional_text(record, "id"),
                    category=optional_text(record, "category") or optional_text(record, "task_name"),
                    meta={**leftover_meta(record, _KNOWN), "ranks": [one, two]},
                )
                out.append(pair.check(("completions", "completions")))
        return out


def _text(entry: Any) -> str:
    completion = entry.get("completion")
    if isinstance(completion, str):
        return text_of(completion, "completions")
    turns = turns_of(completion, "completions")
    if len(turns) != 1 or turns[0]["role"] != "assistant":
        raise RowError("a completion that is not one message of the assistant", field="completions")
    return text_of(turns[0]["content"], "completions")
