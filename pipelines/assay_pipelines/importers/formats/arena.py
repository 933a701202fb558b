"""Chatbot Arena's 55k set: two models' answers to one user, and the user's choice or tie.

`prompt`, `response_a` and `response_b` are JSON lists written as text, one entry per turn; exactly one of
`winner_model_a`, `winner_model_b` and `winner_tie` is 1. Conversations that diverge before the last turn, as most of
the longer ones do, are rejected: no single prompt precedes both last answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.data.conversation import DIVERGED, Turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import number_of, optional_text
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

_WINNERS = {"winner_model_a": "first", "winner_model_b": "second", "winner_tie": "tie"}


class ArenaLayout(RecordLayout):
    """Chatbot Arena votes."""

    source = "Arena-55k"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"prompt", "response_a", "response_b", *_WINNERS} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        user_turns = _texts(record, "prompt")
        answers = {side: _texts(record, side) for side in ("response_a", "response_b")}
        for side, texts in answers.items():
            if len(texts) != len(user_turns):
                raise RowError("not one answer for each turn of the prompt", field=side)
        first, second = answers["response_a"], answers["response_b"]
        if first[:-1] != second[:-1]:
            raise RowError(DIVERGED, field="response_b")
        turns: Turns = []
        for question, answer in zip(user_turns, [*first[:-1], None], strict=True):
            turns.append({"role": "user", "content": question})
            if answer is not None:
                turns.append({"role": "assistant", "content": answer})
        won = [label for column, label in _WINNERS.items() if number_of(record.get(column)) == 1]
        if len(won) != 1:
            raise RowError("not exactly one of the three winner columns is 1", field="winner_tie")
        pair = PairRow(
            turns,
            first[-1],
            second[-1],
            won[0],
            record_id=optional_text(record, "id"),
            meta={"models": [record.get("model_a"), record.get("model_b")]},
            annotator="the person who asked",
        )
        return [pair.check(("response_a", "response_b"))]


def _texts(record: Mapping[str, Any], field: str) -> list[str]:
    texts = record.get(field)
    if isinstance(texts, str):
        try:
            texts = json.loads(texts)
        except (ValueError, RecursionError) as error:
            raise RowError("not a JSON list", field=field) from error
    if not isinstance(texts, list) or not texts:
        raise RowError("not a JSON list with entries", field=field)
    return [text_of(turn, field) for turn in texts]
