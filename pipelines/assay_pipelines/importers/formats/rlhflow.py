"""RLHFlow's pair-pm text: `[CONTEXT] ... [RESPONSE A] ... [RESPONSE B] ...` from the user, `A` or `B` as the answer.

The context is a conversation in the project's plain template, `<turn> user` and `<turn> assistant`; a context without
these marks is one user turn. The text has no escapes, so a row in which a mark occurs twice is ambiguous and rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assay.data.conversation import Turns, text_of, turns_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import leftover_meta, optional_text
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

CONTEXT, FIRST, SECOND = "[CONTEXT]", "[RESPONSE A]", "[RESPONSE B]"
_WHOLE = re.compile(r"\s*\[CONTEXT\] (.*?) \[RESPONSE A\] (.*?) \[RESPONSE B\] (.*?) ?\n?", re.DOTALL)
_TURN = re.compile(r"\n{1,2}<turn> (user|assistant)\n ?")
_KNOWN = frozenset({"messages", "id", "source", "category"})


class RlhflowLayout(RecordLayout):
    """RLHFlow pair-pm text."""

    def matches(self, record: Mapping[str, Any]) -> bool:
        messages = record.get("messages")
        if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
            return False
        content = messages[0].get("content")
        return (
            isinstance(content, str) and content.lstrip().startswith(CONTEXT) and FIRST in content and SECOND in content
        )

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        messages = turns_of(record.get("messages"), "messages")
        if [turn["role"] for turn in messages] != ["user", "assistant"]:
            raise RowError("not one question and one answer", field="messages")
        text = messages[0]["content"]
        if any(text.count(mark) > 1 for mark in (CONTEXT, FIRST, SECOND)):
            raise RowError("a mark occurs twice, so that the end of the responses is ambiguous", field="messages")
        match = _WHOLE.fullmatch(text)
        if match is None:
            raise RowError("not in the form [CONTEXT] ... [RESPONSE A] ... [RESPONSE B] ...", field="messages")
        label = {"A": "first", "B": "second"}.get(messages[1]["content"].strip())
        if label is None:
            raise RowError("the answer is not A or B", field="messages")
        context, first, second = match.groups()
        pair = PairRow(
            _turns(context),
            text_of(first, "messages"),
            text_of(second, "messages"),
            label,
            source=optional_text(record, "source"),
            record_id=optional_text(record, "id"),
            category=optional_text(record, "category"),
            meta=leftover_meta(record, _KNOWN),
        )
        return [pair.check(("messages", "messages"))]


def _turns(context: str) -> Turns:
    before, *pieces = _TURN.split(f"\n{context}")
    if before.strip() or not pieces:
        return [{"role": "user", "content": text_of(context.strip(), "messages")}]
    turns = [{"role": who, "content": content.strip()} for who, content in zip(pieces[::2], pieces[1::2], strict=True)]
    if turns[-1]["role"] != "user":
        raise RowError("the context does not end with the user's turn", field="messages")
    return turns
