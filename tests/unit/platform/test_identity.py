"""Ids: the SQL forms equal the Python forms on any text, and order of the sides does not matter."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import ids
from assay.conversation.message import is_typed
from assay.conversation.parts import (
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinitionPart,
    ToolResultPart,
)
from assay.domain import ROLES, Comparison, Message, prompt_of, response_of, response_text
from assay.store import identity

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
PROMPT = st.lists(st.builds(Message, role=st.sampled_from(ROLES), content=TEXT), min_size=1, max_size=4).map(tuple)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def in_sql(db: duckdb.DuckDBPyConnection, expression: str, **values: object) -> str:
    row = db.execute(f"SELECT {expression}", values).fetchone()
    assert row is not None
    return str(row[0])


@settings(deadline=None)
@given(prompt=PROMPT, first=TEXT, second=TEXT)
def test_sql_equals_python(db: duckdb.DuckDBPyConnection, prompt: tuple[Message, ...], first: str, second: str) -> None:
    prompt_id = ids.prompt_id(prompt)
    messages = [m.to_dict() for m in prompt]
    typed = "$m::STRUCT(role VARCHAR, content VARCHAR)[]"
    assert in_sql(db, identity.prompt_id(f"({typed})"), m=messages) == prompt_id
    a, b = ids.response_id(prompt_id, first), ids.response_id(prompt_id, second)
    assert in_sql(db, identity.response_id("$p", "$t"), p=prompt_id, t=first) == a
    expected = ids.comparison_id(prompt_id, a, b)
    assert in_sql(db, identity.comparison_id("$p", "$a", "$b"), p=prompt_id, a=a, b=b) == expected
    assert in_sql(db, identity.comparison_id("$p", "$a", "$b"), p=prompt_id, a=b, b=a) == expected


@settings(deadline=None)
@given(name=TEXT, strength=st.none() | st.integers(0, 3), origin=TEXT)
def test_sql_judgment_and_annotator(
    db: duckdb.DuckDBPyConnection, name: str, strength: int | None, origin: str
) -> None:
    annotator = ids.annotator_id("human", name)
    assert in_sql(db, identity.annotator_id("'human'", "$n"), n=name) == annotator
    expression = identity.judgment_id("'c-1'", "$a", "'tie'", "$s::TINYINT", "$o")
    expected = ids.judgment_id("c-1", annotator, "tie", strength, origin)
    assert in_sql(db, expression, a=annotator, s=strength, o=origin) == expected


@given(prompt=PROMPT, first=TEXT, second=TEXT)
def test_swapping_the_sides_keeps_the_comparison(prompt: tuple[Message, ...], first: str, second: str) -> None:
    one, one_swapped = Comparison.of(prompt, first, second)
    two, two_swapped = Comparison.of(prompt, second, first)
    assert one == two
    assert one.id == two.id
    assert one_swapped != two_swapped or first == second


@given(one=PROMPT, two=PROMPT)
def test_different_prompts_have_different_ids(one: tuple[Message, ...], two: tuple[Message, ...]) -> None:
    assert (ids.prompt_id(one) == ids.prompt_id(two)) == (one == two)


def typed_messages(text: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Message, ...]]:
    some = st.none() | text
    part = st.one_of(
        st.builds(TextPart, text),
        st.builds(ThinkingPart, text),
        st.builds(ImagePart, text, some, some),
        st.builds(ToolDefinitionPart, text, some, some),
        st.builds(ToolCallPart, text, text, some),
        st.builds(ToolResultPart, text, some, some),
    )
    message = st.builds(Message, st.sampled_from(ROLES), st.lists(part, min_size=1, max_size=3).map(tuple))
    return st.lists(message, min_size=1, max_size=3).map(tuple).filter(is_typed)


@settings(deadline=None)
@given(prompt=typed_messages(TEXT), response=typed_messages(TEXT))
def test_sql_equals_python_for_typed_parts(
    db: duckdb.DuckDBPyConnection, prompt: tuple[Message, ...], response: tuple[Message, ...]
) -> None:
    prompt_id, conversation = ids.prompt_id(prompt), ids.conversation_json(prompt)
    texts = [{"role": m.role, "content": m.text} for m in prompt]
    messages = "$m::STRUCT(role VARCHAR, content VARCHAR)[]"
    assert in_sql(db, identity.prompt_id(f"({messages})", "$c"), m=texts, c=conversation) == prompt_id
    assert ids.prompt_id(prompt_of(texts)) != prompt_id, "its text view is another conversation"
    expected = ids.response_id(prompt_id, response)
    view, turns = response_text(response), ids.conversation_json(response)
    assert in_sql(db, identity.response_id("$p", "$v", "$t"), p=prompt_id, v=view, t=turns) == expected
    assert prompt_of(json.loads(conversation)) == prompt, "the stored form is read back as it was"


def test_ids_of_texts_are_those_of_earlier_versions() -> None:
    prompt = (Message("system", "Be brief."), Message("user", "Name a metal."))
    assert ids.prompt_id(prompt) == "p-b77d34b34f60fc8b206fbdba2885ff1e"
    assert ids.response_id(ids.prompt_id(prompt), "Gold.") == "r-d589f3bb0f4cd50863d221c22065ad6e"
    same = (Message("system", (TextPart("Be brief."),)), Message("user", "Name a metal."))
    assert ids.prompt_id(same) == ids.prompt_id(prompt), "one text part is text"
    assert response_of([{"role": "assistant", "content": [{"type": "text", "text": "Gold."}]}]) == "Gold."


def test_separators_inside_texts_do_not_collide() -> None:
    one = (Message("user", "a\x1euser\x1f1\x1fb"),)
    two = (Message("user", "a"), Message("user", "b"))
    assert ids.prompt_id(one) != ids.prompt_id(two)
