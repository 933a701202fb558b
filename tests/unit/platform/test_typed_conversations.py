"""Conversations that are more than text: stored, read back, and in stores of earlier versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from assay import ids
from assay.browsing.candidates import candidates_by_id
from assay.conversation.message import part_spans, response_text, response_turns
from assay.conversation.parts import ImagePart, TextPart, ToolCallPart, ToolDefinitionPart, ToolResultPart, part_of
from assay.data.snapshots import Selection, create_snapshot, load_pairs
from assay.data.voted_pairs import snapshot_votes
from assay.domain import Comparison, Message, Prompt, Response, response_of
from assay.errors import BadInputError
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import insert_responses
from assay.store.schema import migrate, migrations
from assay.workspace import Workspace

TOOLS = Message("system", (TextPart("Be brief."), ToolDefinitionPart("weather", "of a town", '{"type":"object"}')))
PROMPT: Prompt = (TOOLS, Message("user", (ImagePart("ab" * 16, "image/png"), TextPart("Is it raining here?"))))
CALLED: Response = (
    Message("assistant", (ToolCallPart("weather", '{"town":"Ulm"}', "call-1"),)),
    Message("tool", (ToolResultPart("rain", "call-1", "weather"),)),
    Message("assistant", "Yes."),
)


def row(prompt: Prompt, first: Response, second: Response, number: int = 1) -> dict[str, Any]:
    turns = [None if isinstance(side, str) else ids.conversation_json(side) for side in (first, second)]
    return {
        "row": number,
        "messages": [{"role": m.role, "content": m.text} for m in prompt],
        "conversation": ids.conversation_json(prompt),
        "first": response_text(first),
        "second": response_text(second),
        "first_turns": turns[0],
        "second_turns": turns[1],
        "label": "first",
        "source": "made",
        "record_id": str(number),
    }


@pytest.mark.parametrize(
    "response",
    [
        "Yes.",
        "",
        CALLED,
        (Message("assistant", (TextPart("a\nb"), ToolCallPart("f", "{}"))),),
        (Message("assistant", ""), Message("tool", ""), Message("assistant", (TextPart("é"), TextPart("c")))),
    ],
)
def test_parts_stand_in_the_text_view_where_they_are_said_to(response: Response) -> None:
    text = response_text(response)
    parts = [part.text_view for turn in response_turns(response) for part in turn.parts]
    assert [text[start:end] for start, end in part_spans(response)] == parts


def test_a_typed_pair_is_stored_once_and_read_as_it_was(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "ws")
    table = pa.Table.from_pylist([row(PROMPT, CALLED, "No.")], pair_schema())
    with workspace.store.unit() as db:
        assert store_pairs(db, table, None).comparisons == 1
        again = store_pairs(db, table, None)
        assert insert_responses(db, [(PROMPT, CALLED)], None) == [ids.response_id(ids.prompt_id(PROMPT), CALLED)]
        assert db.execute("SELECT count(*) FROM responses").fetchone() == (2,)
        views = db.execute("SELECT content FROM responses WHERE turns IS NOT NULL").fetchall()
    assert (again.prompts, again.responses, again.comparisons, again.judgments) == (0, 0, 0, 0)
    assert views == [('assistant: weather({"town":"Ulm"})\n\ntool: rain\n\nassistant: Yes.',)]
    create_snapshot(workspace, "all", Selection(), None)
    (pair,) = load_pairs(workspace, "all")
    assert (pair.prompt, pair.chosen, pair.rejected) == (PROMPT, CALLED, "No.")
    comparison = Comparison.of(PROMPT, CALLED, "No.")[0]
    assert pair.comparison_id == comparison.id
    (voted,) = snapshot_votes(workspace, "all")
    assert {voted.first, voted.second} == {CALLED, "No."}
    (candidate,) = candidates_by_id(workspace, [comparison.id])
    assert (candidate.prompt, candidate.response_a, candidate.response_b) == (
        PROMPT,
        comparison.response_a,
        comparison.response_b,
    )


def test_a_store_of_the_schema_before_continues(tmp_path: Path) -> None:
    """Its rows keep their ids, and the log that was written before replays into the new columns."""
    path = tmp_path / "old.duckdb"
    older = frozenset(version for version in migrations() if version < 16)
    prompt = (Message("user", "Name a metal."),)
    prompt_id = ids.prompt_id(prompt)
    with duckdb.connect(str(path)) as db:
        migrate(db, older)
        db.execute("INSERT INTO prompts VALUES (?, [{'role': 'user', 'content': 'Name a metal.'}], NULL)", [prompt_id])
        response_id = ids.response_id(prompt_id, "Gold.")
        db.execute("INSERT INTO responses VALUES (?, ?, 'Gold.', NULL)", [response_id, prompt_id])
        assert migrate(db) == [version for version in sorted(migrations()) if version >= 16]
        assert db.execute("SELECT prompt_id, conversation FROM prompts").fetchall() == [(prompt_id, None)]
        assert db.execute("SELECT content, turns FROM responses").fetchall() == [("Gold.", None)]
        assert insert_responses(db, [(prompt, "Gold.")], None) == [response_id]
        assert db.execute("SELECT count(*) FROM responses").fetchone() == (1,), "the same content has the same id"


@pytest.mark.parametrize(
    "form",
    [
        {"type": "video", "url": "x"},
        {"type": "tool_call", "name": "weather"},
        {"type": "text", "text": 3},
        {"type": "text", "text": "a", "colour": "red"},
    ],
)
def test_a_part_of_another_form_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="not a part of a message"):
        part_of(form)


def test_a_response_begins_and_ends_with_the_assistant() -> None:
    with pytest.raises(BadInputError, match="begins and ends with the assistant"):
        response_of([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])
