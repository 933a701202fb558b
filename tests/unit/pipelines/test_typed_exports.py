"""Exports of typed conversations and of labels of single responses: what a form holds, what is left out and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from empty_workspaces import new_workspace
from PIL import Image
from typed_rows import CALL, CALLED, CALLS, PICTURE, PLAIN, THOUGHT, TOOL, filled, take

from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.exporters.export import ExportReport, export


def wrote(workspace: Workspace, path: Path, format: str) -> tuple[ExportReport, list[dict[str, Any]]]:
    report = export(workspace, path, Selection(), format=format)
    return report, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def comparisons(workspace: Workspace) -> list[Any]:
    with workspace.store.unit() as db:
        return db.execute("SELECT comparison_id, label FROM pools ORDER BY ALL").fetchall()


def row_of(rows: list[dict[str, Any]], text: str) -> dict[str, Any]:
    (found,) = [row for row in rows if text in json.dumps(row)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trl", "trl-implicit"])
def test_trls_rows_hold_everything_and_come_back_equal(tmp_path: Path, name: str) -> None:
    workspace = filled(tmp_path, PLAIN, CALLED, CALLS, THOUGHT, PICTURE)
    report, rows = wrote(workspace, tmp_path / "out.jsonl", name)
    assert (report.rows, report.notes) == (5, ())
    called = row_of(rows, "Yes.")
    assert json.loads(called["tools"]) == [TOOL]
    assert row_of(rows, "I think so.")["chosen"][-1]["tool_calls"] == [CALL]
    assert row_of(rows, "Easy.")["chosen"][-1]["reasoning_content"] == "Easy."
    (image,) = row_of(rows, "Colour?")["images"]
    assert Image.open(tmp_path / image).size == (4, 3)
    assert {type(message["content"]) for row in rows for message in row["chosen"]} == {list}  # one type of a column
    back = new_workspace(tmp_path / "back")
    take(back, tmp_path / "out.jsonl")
    assert comparisons(back) == comparisons(workspace)


def test_verls_lines_hold_everything(tmp_path: Path) -> None:
    workspace = filled(tmp_path, PLAIN, CALLED, CALLS, THOUGHT, PICTURE)
    report, rows = wrote(workspace, tmp_path / "out.jsonl", "verl")
    assert report.rows == 5
    called = row_of(rows, "Yes.")
    assert called["tools"] == [TOOL]
    assert called["extra_info"]["tool_selection"] == ["weather"]
    assert called["prompt"][2]["tool_calls"] == [CALL]
    picture = row_of(rows, "Colour?")
    assert picture["prompt"] == [{"role": "user", "content": "<image>Colour?"}]
    assert (tmp_path / picture["images"][0]).is_file()


@pytest.mark.slow
def test_what_a_form_has_no_place_for_is_left_out_counted_and_named(tmp_path: Path) -> None:
    workspace = filled(tmp_path, PLAIN, CALLED, CALLS, THOUGHT, PICTURE)
    expected = {
        "openrlhf": ({"thinking"}, {"tool definitions": 2, "images": 1}),
        "llama-factory": ({"tool", "image", "call"}, {"thinking": 1}),
        "llama-factory-alpaca": ({"image"}, {"tool calls": 2, "thinking": 1}),
        "nemo-rl": (set(), {"tool definitions": 2, "images": 1, "thinking": 1}),
        "helpsteer3-preference": (set(), {"tool definitions": 2, "images": 1, "thinking": 1}),
    }
    for name, (_, left_out) in expected.items():
        report, rows = wrote(workspace, tmp_path / "out.jsonl", name)
        said = [note for note in report.notes if note.startswith("left out, no place in this form for ")]
        counts = {note.split(" for ", 1)[1].split(": ")[0]: int(note.split(": ")[1].split()[0]) for note in said}
        assert counts == left_out, name
        assert all("(as c-" in note for note in said)
        assert len(rows) == report.rows == 5 - sum(left_out.values())
        assert not any("[image" in json.dumps(row) or "<thinking>" in json.dumps(row) for row in rows)
    report = export(workspace, tmp_path / "out.parquet", Selection(), format="trl")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == report.rows == 5
    folder = export(workspace, tmp_path / "folder", Selection(), format="hf")
    assert folder.rows == 5
    only = filled(tmp_path, THOUGHT)
    with pytest.raises(BadInputError, match="nothing to export: left out, no place in this form for thinking: 1"):
        export(only, tmp_path / "none.jsonl", Selection(), format="llama-factory")


def test_llama_factorys_two_forms(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "S"}, *({"role": r, "content": t} for r, t in zip(
        ("user", "assistant", "user"), "abc", strict=True))]  # fmt: skip
    twice = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    marked = {**PLAIN, "prompt": [{"role": "user", "content": "What does <image> mean?"}]}
    workspace = filled(tmp_path, PLAIN, {**PLAIN, "prompt": talk}, {**PLAIN, "prompt": twice}, CALLED, CALLS, PICTURE)
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM comparisons").fetchall() == [(6,)]
    info = tmp_path / "dataset_info.json"
    info.write_text('{"mine": {"file_name": "mine.json"}}')
    report, rows = wrote(workspace, tmp_path / "train.jsonl", "llama-factory")
    assert report.rows == 5
    assert any("turns that do not alternate: 1" in note for note in report.notes)
    called = row_of(rows, "Yes.")
    assert called["system"] == "Be brief."
    assert [turn["from"] for turn in called["conversations"]] == ["human", "function_call", "observation"]
    assert json.loads(called["conversations"][1]["value"]) == CALL["function"]
    assert json.loads(called["tools"]) == [TOOL["function"]]
    assert row_of(rows, "I think so.")["chosen"]["from"] == "function_call"
    assert row_of(rows, "Colour?")["conversations"][0]["value"] == "<image>Colour?"
    report, rows = wrote(workspace, tmp_path / "old.jsonl", "llama-factory-alpaca")
    spoken = row_of(rows, '"c"')
    assert (spoken["instruction"], spoken["history"], spoken["system"]) == ("c", [["a", "b"]], "S")
    entries = json.loads(info.read_text())
    assert set(entries) == {"mine", "train", "old"}
    assert entries["train"]["columns"]["images"] == "images"
    take(workspace, tmp_path / "more.jsonl", marked)
    report, _ = wrote(workspace, tmp_path / "old.jsonl", "llama-factory-alpaca")
    assert any("texts with <image>, the mark of an image: 1" in note for note in report.notes)
    info.write_text("[]")
    with pytest.raises(BadInputError, match="not a JSON object"):
        export(workspace, tmp_path / "train.jsonl", Selection(), format="llama-factory")


@pytest.mark.slow
def test_binary_labels_and_sides_of_pairs_as_unpaired_rows(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "Q"}]
    label = {"prompt": asked, "completion": [{"role": "assistant", "content": "lone"}], "label": False}
    workspace = filled(tmp_path, {**PLAIN, "prompt": asked}, {"prompt": asked, "chosen": "bad", "rejected": "worst"})
    take(workspace, tmp_path / "labels.jsonl", label)
    report, rows = wrote(workspace, tmp_path / "kto.jsonl", "kto")
    assert {row["completion"][0]["content"]: row["label"] for row in rows} == {
        "good": True,
        "worst": False,
        "lone": False,
    }
    assert report.notes == ("left out, both accepted and refused: 1 responses",)
    with workspace.store.unit() as db:
        db.execute("UPDATE response_judgments SET value = 1").fetchall()
    _, rows = wrote(workspace, tmp_path / "kto.jsonl", "kto")
    assert {row["completion"][0]["content"]: row["label"] for row in rows}["lone"] is True
    typed = filled(tmp_path, CALLS)
    _, rows = wrote(typed, tmp_path / "typed.jsonl", "kto")
    assert row_of(rows, "Ulm")["completion"][0]["tool_calls"] == [CALL]


@pytest.mark.slow
def test_step_labels_as_trls_stepwise_rows(tmp_path: Path) -> None:
    first = {"prompt": "2 + 3 + 1?", "completions": ["2 + 3 = 5", "5 + 1 = 6é", "7"], "labels": [1, 1, -1]}
    neutral = {"prompt": "1 + 1?", "completions": ["hm", "2", "so 2"], "labels": [1, 0, -1]}
    none = {"prompt": "0?", "completions": ["well", "0"], "labels": [0, -1]}
    workspace = filled(tmp_path, first, neutral, none)
    report, rows = wrote(workspace, tmp_path / "steps.jsonl", "stepwise")
    kept = {row["prompt"]: (row["completions"], row["labels"]) for row in rows}
    assert kept == {
        "2 + 3 + 1?": (first["completions"], [True, True, False]),
        "1 + 1?": (["hm"], [True]),
    }
    assert set(report.notes) == {
        "1 rows end before a neutral or unlabelled step",
        "1 have no such step and are left out",
    }
    with pytest.raises(BadInputError, match="no step of these responses has a label"):
        export(filled(tmp_path, PLAIN), tmp_path / "x.jsonl", Selection(), format="stepwise")


def test_ratings_of_typed_conversations_are_left_out_and_counted(tmp_path: Path) -> None:
    plain = {"prompt": "Q", "completion": "A", "label": True}
    typed = {"prompt": CALLED["prompt"], "completion": "Yes.", "label": False}
    report, rows = wrote(filled(tmp_path, plain, typed), tmp_path / "ratings.jsonl", "ratings")
    assert [row["response"] for row in rows] == ["A"]
    (note,) = report.notes
    assert note.startswith("left out, no place in this form for tool calls: 1 (as r-")


def test_an_export_without_images_names_none(tmp_path: Path) -> None:
    workspace = filled(tmp_path, PLAIN, PICTURE)
    report = export(workspace, tmp_path / "out.jsonl", Selection(), format="trl", images=False)
    assert (report.rows, len(report.notes)) == (1, 1)
    assert "images" in report.notes[0]
    assert not (tmp_path / "out-images").exists()


@pytest.mark.parametrize(("name", "target"), [("hf", "set"), ("verl", "out.jsonl")])
def test_what_has_no_place_is_not_among_the_pairs_that_are_counted(tmp_path: Path, name: str, target: str) -> None:
    workspace = filled(tmp_path, PLAIN, PICTURE)
    report = export(workspace, tmp_path / target, Selection(), format=name, images=False)
    assert report.rows == 1
    if name == "verl":
        assert "1 pairs in extra_info.comparisons" in report.notes
        return
    card = (tmp_path / target / "README.md").read_text(encoding="utf-8")
    assert "1 preference pairs" in card
    assert "1 pairs that have no place in this form" in card
    with pytest.raises(BadInputError, match="an export of Assay: import its folders `pairs` and `judgments`"):
        take(new_workspace(tmp_path / "back"), tmp_path / target)
