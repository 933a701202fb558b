"""Exported and imported again, comparisons keep their ids and labels their values, as far as a format can carry them.

What a format cannot carry is named in `LACKS` for conversations, which are then left out and counted, and in the tests
of labels for what is said of them. docs/curation/formats.md has the same table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from empty_workspaces import new_workspace
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typed_rows import png

from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.exporters.export import ExportReport, export
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

TOOL = {"name": "weather", "description": "of a town", "parameters": {"type": "object", "properties": {"town": {}}}}
EVERYTHING = {"tools", "calls", "images", "thinking", "turns", "call ids"}
#: What has no place in a format, of the features of `conversation`; "ties": pairs without a chosen side.
LACKS: dict[str, tuple[str, set[str]]] = {
    "trl": ("out.jsonl", {"ties"}),
    "trl as Parquet": ("out.parquet", {"ties"}),
    "trl-implicit": ("out.jsonl.gz", {"ties"}),
    "trl-implicit as Parquet": ("out.parquet", {"ties"}),
    "verl": ("out.jsonl", {"ties"}),
    "verl as Parquet": ("out.parquet", {"ties"}),
    "openrlhf": ("out.jsonl", {"ties", "tools", "images"}),
    "openrlhf as Parquet": ("out.parquet", {"ties", "tools", "images"}),
    "llama-factory": ("out.jsonl", {"ties", "thinking", "turns", "call ids"}),
    "llama-factory-alpaca": ("out.jsonl", {"ties", "calls", "thinking", "turns"}),
    "nemo-rl": ("out.jsonl", {"ties", *EVERYTHING} - {"turns"}),
    "helpsteer3-preference": ("out.jsonl", EVERYTHING),
}

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)


def call(with_id: bool) -> dict[str, Any]:
    about = {"type": "function", "function": {"name": "weather", "arguments": '{"town":"Ulm","day":1.0}'}}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", **about} if with_id else about]}


@st.composite
def conversation(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    """A row in TRL's labelled form, and what it has beside texts."""
    features = set()
    question: Any = draw(WORDS)
    if draw(st.booleans()):
        features.add("images")
        question = [{"type": "image", "image": png()}, {"type": "text", "text": question}]
    prompt: list[dict[str, Any]] = [{"role": "system", "content": draw(WORDS)}] if draw(st.booleans()) else []
    prompt.append({"role": "user", "content": question})
    row: dict[str, Any] = {}
    if draw(st.booleans()):
        features.add("tools")
        row["tools"] = [{"type": "function", "function": TOOL}]
    ending = draw(st.sampled_from(["text", "talk", "call", "result", "thinking", "turns"]))
    with_id = draw(st.booleans())
    first: Any = draw(WORDS)
    if ending == "talk":
        prompt += [{"role": "assistant", "content": draw(WORDS)}, {"role": "user", "content": draw(WORDS)}]
    if ending in ("call", "result"):
        features |= {"calls", *(["call ids"] if with_id else [])}
    if ending == "call":
        first = [call(with_id)]
    if ending == "result":
        prompt += [call(with_id), {"role": "tool", "content": "rain", **({"tool_call_id": "c1"} if with_id else {})}]
    if ending == "thinking":
        features.add("thinking")
        first = [{"role": "assistant", "reasoning_content": "Hm.", "content": first}]
    if ending == "turns":
        features.add("turns")
        first = [{"role": "assistant", "content": f"{first}?"}, {"role": "user", "content": "Yes."}]
        first.append({"role": "assistant", "content": draw(WORDS)})
    label = draw(st.sampled_from(["A", "B", "tie"]))
    features |= {"ties"} if label == "tie" else set()
    second = draw(WORDS.filter(lambda text: text != first))
    row |= {"prompt": prompt, "response_a": first, "response_b": second, "label": label}
    return row | ({} if label == "tie" else {"strength": draw(st.integers(1, 3))}), features


def take(workspace: Workspace, path: Path, *rows: dict[str, Any]) -> ImportReport:
    if rows:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    assert report.rejected == {}
    return report


def back_from(path: Path) -> Workspace:
    workspace = new_workspace(path.parent / f"back-{len(list(path.parent.iterdir()))}")
    take(workspace, path)
    return workspace


def select(workspace: Workspace, query: str) -> list[Any]:
    with workspace.store.unit() as db:
        return db.execute(query).fetchall()


def judged(workspace: Workspace, *, strengths: bool = True) -> dict[str, Any]:
    """Comparison id -> the source's answer and strength."""
    rows = select(workspace, "SELECT comparison_id, answer, strength FROM judgments")
    return {comparison: (answer, strength if strengths else None) for comparison, answer, strength in rows}


@pytest.mark.slow
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],  # an example writes and reads a dozen files: none to spare for smaller ones
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=st.lists(conversation(), min_size=4, max_size=8, unique_by=lambda each: json.dumps(each[0]["prompt"])))
def test_a_pair_comes_back_from_every_format(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[dict[str, Any], set[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("rounds")
    plain: tuple[dict[str, Any], set[str]] = (
        {"prompt": "Plain?", "response_a": "good", "response_b": "bad", "label": "A", "strength": 2},
        set(),
    )
    rows = [*rows, plain]
    workspace = new_workspace(folder / "workspace")
    numbered = [row | {"id": str(number)} for number, (row, _) in enumerate(rows)]
    take(workspace, folder / "rows.jsonl", *numbered)
    has = {
        each: rows[int(number)][1] for each, number in select(workspace, "SELECT comparison_id, record_id FROM origins")
    }
    for number, (name, (file, lacks)) in enumerate(LACKS.items()):
        path = folder / f"{number}" / file
        path.parent.mkdir()
        report = export(workspace, path, Selection(), format=name.partition(" ")[0])
        marks = name.startswith(("nemo", "llama"))
        written = {each for each, features in has.items() if not features & lacks}
        carried = {each for each, features in has.items() if not features & (lacks - {"call ids"})}
        if "call ids" in lacks and "calls" not in lacks:  # written without their ids, so that they are others
            assert report.rows == len(carried), name
        back = judged(back_from(path), strengths=not marks)
        expected = {each: values for each, values in judged(workspace, strengths=not marks).items() if each in written}
        if name == "helpsteer3-preference":
            assert {each: answer for each, (answer, _) in back.items()} == {e: a for e, (a, _) in expected.items()}
            continue
        assert {each: back.get(each) for each in expected} == expected, name
        assert len(back) == len(carried), name


def exported(workspace: Workspace, path: Path, name: str, **options: Any) -> ExportReport:
    return export(workspace, path, Selection(), format=name, **options)


@pytest.mark.slow
def test_every_judgment_comes_back_from_the_folder(tmp_path: Path) -> None:
    typed = [{"role": "user", "content": [{"type": "image", "image": png()}, {"type": "text", "text": "Colour?"}]}]
    votes = {"annotator_1": "A", "annotator_2": "tie", "judges": {"gpt-4": "B"}}
    workspace = new_workspace(tmp_path / "workspace")
    rows = [
        {"prompt": prompt, "response_a": [call(True)], "response_b": "No.", "label": "A", "strength": 3, **votes}
        for prompt in ("Why?", typed)
    ]
    take(workspace, tmp_path / "rows.jsonl", *rows)
    exported(workspace, tmp_path / "folder", "hf", rationales=True)
    query = (
        "SELECT comparison_id, kind, answer, strength FROM judgments JOIN annotators USING (annotator_id) ORDER BY ALL"
    )
    back = back_from(tmp_path / "folder" / "judgments" / "train.parquet")
    assert select(back, query) == select(workspace, query)
    assert len(select(back, query)) == 8
    assert [path.name for path in (tmp_path / "folder").iterdir() if "image" in path.name] == []


USER = {"role": "user", "content": "Why?"}
RATED = [
    {"prompt": "Why?", "response": "So.", "helpfulness": 4, "scores": [0.5]},
    {
        "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Why?"}],
        "response": "No.",
        "coherence": 1,
    },
]
LABELLED = [
    {"prompt": "Why?", "completion": [call(False)], "label": True, "tools": [TOOL]},
    {"prompt": "Why?", "completion": "bad", "label": False, "tools": [TOOL]},
    {"prompt": [{"role": "user", "content": [{"type": "image", "image": png()}]}], "completion": "x", "label": False},
]
STEPPED = [
    {"prompt": "2 + 2?", "completions": ["2", "is", "4"], "labels": [1, 1, -1], "response": "2\n\n is 4."},
    {"prompt": "3 + 3?", "completions": ["3", "so 6"], "labels": [0.25, 0.75]},
]
#: Table, and what is said in it, of a response; who said it is not carried.
OF_RESPONSES = "SELECT response_id, aspect, value FROM response_judgments ORDER BY ALL"
OF_STEPS = """SELECT response_id, step, start, "end", round((value - low) / (high - low), 6) FROM step_judgments
              ORDER BY ALL"""


@pytest.mark.parametrize(
    ("name", "file", "rows", "query"),
    [
        ("ratings", "out.jsonl", RATED, OF_RESPONSES),
        ("kto", "out.jsonl", LABELLED, OF_RESPONSES),
        ("kto", "out.parquet", LABELLED, OF_RESPONSES),
        ("steps", "out.jsonl", STEPPED, OF_STEPS),
        ("stepwise", "out.jsonl", STEPPED[:1], OF_STEPS),
        ("stepwise", "out.parquet", STEPPED[:1], OF_STEPS),
    ],
)
def test_labels_of_responses_come_back(
    tmp_path: Path, name: str, file: str, rows: list[dict[str, Any]], query: str
) -> None:
    workspace = new_workspace(tmp_path / "workspace")
    take(workspace, tmp_path / "rows.jsonl", *rows)
    assert exported(workspace, tmp_path / file, name).notes == ()
    back = back_from(tmp_path / file)
    assert select(back, query) == select(workspace, query)
    assert select(back, query) != []
    pairs = "SELECT comparison_id FROM comparisons ORDER BY 1"
    assert select(back, pairs) == select(workspace, pairs)
