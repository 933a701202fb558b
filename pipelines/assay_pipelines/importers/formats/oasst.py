"""OpenAssistant's messages: ranked replies of people to a conversation, at any depth of its tree, and their labels.

A record is a tree, as in `*.trees.jsonl.gz` (`prompt` is its first message, every message has its `replies`), or one
message of a tree, as in the published Parquet files (`message_tree_id`, `parent_id`). A message has `text`, `role`
("prompter" or "assistant"), `lang`, `rank` (0 the best) and `labels`, the volunteers' means from 0 to 1. All ranked
replies of the assistant to one message are a ranking. Deleted messages, and those that reviewers rejected, are left out
with what follows them.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, TypeAlias

from assay.data.conversation import Turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import (
    label_of_scores,
    number_of,
    optional_text,
    rated_value,
    rejecting,
)
from assay_pipelines.importers.layout import GroupedLayout, RecordLayout
from assay_pipelines.importers.rows import PairRow, RatedRow, Row, rating

_Message: TypeAlias = Mapping[str, Any]
NO_RANKING = "no message with two ranked replies or with labels"
ORPHAN = "the message that it replies to is not in the file"
_REMOVED = ("deleted", "review_result")
_ROLES = {"prompter": "user", "assistant": "assistant"}


class OasstTreesLayout(RecordLayout):
    """OpenAssistant's message trees."""

    title, source = "OpenAssistant's message trees", "OASST"

    def matches(self, record: Mapping[str, Any]) -> bool:
        prompt = record.get("prompt")
        return "message_tree_id" in record and isinstance(prompt, dict) and {"text", "role"} <= prompt.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """All pairs of the ranked replies of one tree; a message that cannot be read comes as its RowError."""
        prompt = record.get("prompt")
        if not isinstance(prompt, dict):
            raise RowError("missing or no object", field="prompt")
        rows = _tree_rows(prompt, optional_text(record, "tree_state"))
        if not rows:
            raise RowError(NO_RANKING, field="prompt")
        return rows


class OasstMessagesLayout(GroupedLayout):
    """OpenAssistant's messages, one a row."""

    title, source = "OpenAssistant's messages", "OASST"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"message_id", "parent_id", "message_tree_id", "text", "role"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """The message as one response, to nothing."""
        row = RatedRow([], text_of(record.get("text"), "text"), _labels(record), occasion=self.group_of(record))
        row.record_id = "/".join(
            str(optional_text(record, name)) for name in ("role", "message_id", "parent_id", "rank")
        )
        row.language = optional_text(record, "lang")
        row.meta = {name: record.get(name) for name in (*_REMOVED, "tree_state")}
        return [row]

    def group_of(self, record: Mapping[str, Any]) -> str:
        text_of(record.get("message_id"), "message_id")
        if record.get("parent_id") is not None:
            text_of(record["parent_id"], "parent_id")
        return text_of(record.get("message_tree_id"), "message_tree_id")

    def parse_group(self, records: list[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, Row | RowError]]:
        messages = {record.get("message_id"): {**record, "replies": []} for _, record in records}
        orphans = []
        for number, record in records:
            parent = record.get("parent_id")
            if parent in messages and parent != record.get("message_id"):
                messages[parent]["replies"].append(messages[record.get("message_id")])
            elif parent is not None:
                orphans.append((number, RowError(ORPHAN, field="parent_id")))
        for number, record in records:
            if record.get("parent_id") is None:
                rows = _tree_rows(messages[record.get("message_id")], optional_text(record, "tree_state"))
                yield from ((number, row) for row in rows or [RowError(NO_RANKING, field="rank")])
        yield from orphans


def _tree_rows(prompt: _Message, state: str | None) -> list[Row | RowError]:
    """All pairs of the ranked replies of one tree, and the labels of its replies; what cannot be read comes as its
    RowError."""
    rows: list[Row | RowError] = []
    for turns, replies in _replies(prompt, rows):
        for reply in replies:
            with rejecting(rows, f"labels of message {reply.get('message_id')}"):
                if labels := _labels(reply):
                    rated = RatedRow(turns, text_of(reply.get("text"), "text"), labels)
                    rated.record_id, rated.language = optional_text(reply, "message_id"), optional_text(reply, "lang")
                    rows.append(rated)
        ranked = [reply for reply in replies if number_of(reply.get("rank")) is not None]
        for one, two in combinations(ranked, 2):
            with rejecting(rows, f"replies to message {prompt.get('message_id')}"):
                rows.append(_pair(turns, one, two, state))
    return rows


def _labels(message: _Message) -> list[dict[str, Any]]:
    """Of the forms {name: {value, count}} and {name: [...], value: [...], count: [...]}."""
    labels = message.get("labels")
    if not isinstance(labels, dict):
        return []
    names, values = labels.get("name"), labels.get("value")
    if isinstance(names, list) and isinstance(values, list):
        stated = list(zip(map(str, names), values, strict=False))
    else:
        stated = [(str(name), label.get("value")) for name, label in labels.items() if isinstance(label, dict)]
    numbers = ((name, rated_value(value, f"labels.{name}")) for name, value in stated)
    return [rating(name, float(number), scale=(0.0, 1.0)) for name, number in numbers if number is not None]


def _pair(turns: Turns, one: _Message, two: _Message, state: str | None) -> PairRow:
    first, second = text_of(one.get("text"), "text"), text_of(two.get("text"), "text")
    ranks = [number_of(message.get("rank")) for message in (one, two)]
    assert ranks[0] is not None
    assert ranks[1] is not None
    pair = PairRow(
        turns,
        first,
        second,
        label_of_scores(-ranks[0], -ranks[1]),
        record_id=optional_text(one, "parent_id"),
        language=optional_text(one, "lang"),
        meta={"ranks": ranks, **({"tree_state": state} if state else {})},
        annotator="OpenAssistant's volunteers",
    )
    return pair.check(("text", "text"))


def _replies(root: _Message, rows: list[Row | RowError]) -> Iterator[tuple[Turns, list[_Message]]]:
    """The conversation before, and the replies of the assistant, for every message that has any. Trees may be deep, so
    no recursion.
    """
    waiting: list[tuple[Turns, _Message]] = [([], root)]
    while waiting:
        before, message = waiting.pop()
        role, text = _ROLES.get(str(message.get("role"))), message.get("text")
        if role is None or not isinstance(text, str) or not text:
            rows.append(RowError("a message without a known role and text", field="replies"))
            continue
        turns = [*before, {"role": role, "content": text}]
        listed = message.get("replies")
        standing = [reply for reply in listed if _is_standing(reply)] if isinstance(listed, list) else []
        waiting += [(turns, reply) for reply in reversed(standing)]
        yield turns, [reply for reply in standing if reply.get("role") == "assistant"]


def _is_standing(reply: object) -> bool:
    return isinstance(reply, dict) and not reply.get("deleted") and reply.get("review_result") is not False
