"""Adapters in YAML of one's own: rules, path expressions, several annotators' rankings, complaints that name a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from assay.data.json_lines import RowError
from assay.errors import BadInputError, NotFoundError
from assay.workspace import Workspace
from assay_pipelines.importers.adapters.paths import columns_of, field_of, getter
from assay_pipelines.importers.kind import create_layout
from assay_pipelines.importers.rows import FeedbackRow, PairRow, Row
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

BASE: dict[str, Any] = {"title": "mine", "requires": ["q"], "prompt": "q"}


def rows_of(folder: Path, adapter: dict[str, Any], record: dict[str, Any]) -> list[Row | RowError]:
    path = folder / f"adapter-{len(list(folder.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump({**BASE, **adapter}))
    return create_layout(str(path)).parse(record)


def pair_of(folder: Path, pair: dict[str, Any], record: dict[str, Any]) -> PairRow:
    (row,) = rows_of(
        folder, {"pairs": [{"first": "a", "second": "b", **pair}]}, {"q": "?", "a": "x", "b": "y", **record}
    )
    assert isinstance(row, PairRow)
    return row


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", 1),
        ("b.c", 2),
        ("b.missing.c", None),
        ("with.dots", 3),
        ("hy-phen", 4),
        ("list[1].x", 6),
        ("list[].x", [5, 6]),
        ("list[?x > `5`].x | [0]", 6),
        ("a || b", 1),
        ("missing || b.c", 2),
        ("'text'", "text"),
        ("length(missing)", None),
        ("list < `3`", None),
        ("nan", None),
        ("@", ...),
    ],
)
def test_paths(path: str, value: Any) -> None:
    record = {"a": 1, "b": {"c": 2}, "with.dots": 3, "hy-phen": 4, "list": [{"x": 5}, {"x": 6}], "nan": float("nan")}
    assert getter(path)(record) == (record if value is ... else value)


@given(st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){0,3}", fullmatch=True), st.integers())
def test_plain_paths_are_lookups(path: str, value: int) -> None:
    record: Any = value
    for name in reversed(path.split(".")):
        record = {name: record}
    assert getter(path)(record) == value
    assert getter(path)({}) is None


def test_columns_that_a_path_begins_with() -> None:
    assert columns_of("a[?b == `1`].c | [0]") == ["a"]
    assert columns_of("x.y || keys(z)") == ["x", "z"]
    assert (field_of("score[0]"), field_of("a.b")) == ("score", "a.b")


@pytest.mark.parametrize(
    ("label", "record", "expected"),
    [
        ({"value": "w", "values": {1: "first", 2: "second"}}, {"w": 1.0}, ("first", None)),
        ({"value": "w", "values": {"Model A": "first"}}, {"w": " model a"}, ("first", None)),
        ({"value": "w", "values": {"neither": None}}, {"w": "neither"}, (None, None)),
        ({"value": "w"}, {"w": "B"}, ("second", None)),
        ({"scores": ["s.a", "s.b"], "span": 9}, {"s": {"a": "1", "b": 10}}, ("second", 3)),
        ({"scores": ["s.a", "s.b"], "lower_is_better": True}, {"s": {"a": 1, "b": 2}}, ("first", None)),
        ({"number": "n", "zero": 0.5, "positive": "second"}, {"n": 0.5}, ("tie", None)),
        ({"flags": {"first": "f", "tie": "t"}}, {"f": 0, "t": True}, ("tie", None)),
    ],
)
def test_labels(tmp_path: Path, label: Any, record: dict[str, Any], expected: tuple[str | None, int | None]) -> None:
    pair = pair_of(tmp_path, {"label": label}, record)
    assert (pair.label, pair.strength) == expected


@pytest.mark.parametrize(
    ("label", "record", "reason"),
    [
        ({"value": "w", "values": {1: "first"}}, {"w": 3}, "field 'w': none of 1"),
        ({"value": "w", "values": {1: "first"}}, {}, "field 'w': missing"),
        ({"scores": ["s[0]", "s[1]"]}, {"s": [1, "x"]}, "field 's': not a number"),
        ({"scores": ["s[0]", "s[1]"]}, {"s": [1, float("nan")]}, "field 's': missing"),
        ({"number": "n", "span": 3, "whole": True}, {"n": 1.5}, "field 'n': not a whole number from -3 to 3"),
        ({"flags": {"first": "f", "tie": "t"}}, {"f": 1, "t": 1}, "field 'f': not exactly one of f, t is 1"),
    ],
)
def test_labels_that_cannot_be_read(tmp_path: Path, label: Any, record: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError) as raised:
        pair_of(tmp_path, {"label": label}, record)
    assert str(raised.value) == reason


def test_rankings_of_several_writers_stay_several(workspace: Workspace, tmp_path: Path) -> None:
    adapter = {
        **BASE,
        "ranking": {"responses": "texts", "by": {"each": "writers", "annotator": "name", "ranks": "order"}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(adapter))
    writers = [
        {"name": name, "order": order} for name, order in (("ann", [1, 2, 3]), ("bob", [3, 2, 1]), ("eve", [1, 1, 2]))
    ]
    record = {"q": "?", "texts": ["x", "y", "z"], "writers": [*writers, {"name": "joe", "order": [1, 2]}]}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(record))
    config = ImportConfig(str(path), format=str(tmp_path / "mine.yaml"))
    report = run_import(workspace, open_import(workspace, config))
    assert report.rejected == {"writers: not one number for each response": 1}
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT name, count(*), count(*) FILTER (answer = 'tie')
               FROM judgments JOIN annotators USING (annotator_id) GROUP BY name ORDER BY name"""
        ).fetchall()
    assert rows == [("x/ann", 3, 0), ("x/bob", 3, 0), ("x/eve", 3, 1)]


def test_filters_history_and_templates(tmp_path: Path) -> None:
    adapter = {
        "prompt": {"template": ["{post.title}: {q}", "{q}"], "system": "sys", "history": "before"},
        "pairs": [{"first": "a", "second": "b", "label": "first", "when": "keep"}],
        "feedback": [{"response": "a", "text": "notes"}],
        "reject": [{"when": "deleted", "reason": "deleted", "field": "deleted"}],
    }
    record = {"q": "?", "a": "x", "b": "y", "keep": True, "post": {"title": "T"}, "sys": "S", "before": [["1", "2"]]}
    (pair,) = rows_of(tmp_path, adapter, record)
    assert isinstance(pair, PairRow)
    assert [turn["content"] for turn in pair.turns] == ["S", "1", "2", "T: ?"]
    (note,) = rows_of(tmp_path, adapter, {"q": "?", "a": "x", "keep": False, "notes": ["n"]})
    assert isinstance(note, FeedbackRow)
    assert (note.turns[0]["content"], note.voter, note.content) == ("?", "position-1", "n")
    with pytest.raises(RowError, match="deleted"):
        rows_of(tmp_path, adapter, {**record, "deleted": True})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a", "an adapter is a mapping"),
        ("title: [", "not readable as YAML"),
        (
            "title: t\nrequires: [q]\npairs: [{first: a, second: b, label: third}]",
            "field 'pairs.0.label': must be",
        ),
        (
            "title: t\nrequires: [q]\npairs: [{first: a, second: b, label: {value: w, codes: {}}}]",
            "field 'pairs.0.label.codes': Extra inputs",
        ),
        (
            "title: t\nrequires: [q]\nprompt: q\npairs: [{first: a, second: b, label: first, winner: c}]",
            "pairs.0.winner",
        ),
        ("title: t\nrequires: ['a[']\npairs: []", "'a[' is no path expression"),
        (
            "title: t\nrequires: [q]",
            "an adapter has pairs, a ranking, a rating, feedback, a principle or a reject",
        ),
        ("title: t\nrequires: [q]\nranking: {responses: r, ordered: true}", "only pairs of whole conversations"),
        ("title: t\nrequires: [q]\nprompt: q\nranking: {responses: r}", "exactly one of score, rank"),
    ],
)
def test_a_faulty_adapter_is_named_with_its_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError) as raised:
        create_layout(str(path))
    assert str(path) in str(raised.value)
    assert complaint in str(raised.value)


def test_an_adapter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file .*none\.yaml"):
        ImportConfig("x.jsonl", format=str(tmp_path / "none.yaml"))
