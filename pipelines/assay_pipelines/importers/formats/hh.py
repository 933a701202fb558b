r"""Anthropic's HH-RLHF text: two dialogues, `\n\nHuman: ...\n\nAssistant: ...`, identical up to the last turn.

White space around turns is stripped, as other readers of this data set do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assay.data.conversation import DIVERGED, Turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import leftover_meta, optional_text
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

_TURN = re.compile(r"(?:^|\n\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}
_KNOWN = frozenset({"chosen", "rejected", "id", "category"})


class HhLayout(RecordLayout):
    """HH-RLHF text."""

    def matches(self, record: Mapping[str, Any]) -> bool:
        sides = (record.get("chosen"), record.get("rejected"))
        return all(isinstance(side, str) and side.lstrip().startswith("Human:") for side in sides)

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """Raises RowError for a row that is no pair."""
        chosen = _turns(text_of(record.get("chosen"), "chosen"), "chosen")
        rejected = _turns(text_of(record.get("rejected"), "rejected"), "rejected")
        if chosen == rejected:
            raise RowError("the two sides are identical")
        if chosen[:-1] != rejected[:-1]:
            raise RowError(DIVERGED, field="rejected")
        if len(chosen) == 1:
            raise RowError("no turn before the response", field="chosen")
        pair = PairRow(
            chosen[:-1],
            chosen[-1]["content"],
            rejected[-1]["content"],
            "first",
            record_id=optional_text(record, "id"),
            category=optional_text(record, "category"),
            meta=leftover_meta(record, _KNOWN),
        )
        return [pair.check()]


def looks_like_red_team(record: Mapping[str, Any]) -> bool:
    """The red-team set of the same publication: one rated transcript per row, with nothing to compare it to."""
    return {"transcript", "min_harmlessness_score_transcript", "task_description"} <= record.keys()


def _turns(text: str, field: str) -> Turns:
    before, *pieces = _TURN.split(text)
    if before.strip() or not pieces:
        raise RowError("not in Human/Assistant form", field=field)
    turns = [
        {"role": _ROLES[who], "content": content.strip()}
        for who, content in zip(pieces[::2], pieces[1::2], strict=True)
    ]
    if turns[-1]["role"] != "assistant":
        raise RowError("the last turn is not the assistant's", field=field)
    return turns
