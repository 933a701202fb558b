"""Snapshots are deterministic and immutable; pairs come the same from a snapshot, an export and a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pair_files import write_pairs

from assay.data.pairs import load_pairs_or_file, read_pair_file
from assay.data.snapshots import (
    HashSlice,
    Selection,
    create_snapshot,
    create_split,
    get_snapshot,
    list_snapshots,
    load_pairs,
)
from assay.domain import Message, PreferencePair
from assay.errors import BadInputError, NotFoundError
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.exporters.export import export


def fill(workspace: Workspace, *, prompts: int = 40, reverse: bool = False) -> None:
    """Two pairs for each prompt, one tie, categories of ten prompts each."""
    rows: list[dict[str, Any]] = [
        {
            "row": 2 * n + k,
            "messages": [{"role": "user", "content": f"question {n}"}],
            "first": f"good {n} {k}",
            "second": f"bad {n} {k}",
            "label": "tie" if n == 0 and k == 0 else "first",
            "strength": 2,
            "source": "even" if n % 2 == 0 else "odd",
            "record_id": f"{n}-{k}",
            "category": f"topic {n // 10}",
        }
        for n in range(prompts)
        for k in range(2)
    ]
    if reverse:
        rows.reverse()
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)


def test_pairs_are_resolved_and_ordered(workspace: Workspace) -> None:
    fill(workspace)
    made = create_snapshot(workspace, "all", Selection(), None)
    pairs = load_pairs(workspace, "all")
    assert (made.items, made.ties, made.unlabelled, made.pools) == (80, 1, 0, {"unverified": 80})
    assert len(pairs) == 79
    assert [p.comparison_id for p in pairs] == sorted(p.comparison_id for p in pairs)
    assert all(p.chosen == str(p.rejected).replace("bad", "good") for p in pairs)
    assert {(p.margin, p.weight) for p in pairs} == {(2.0, 1.0)}
    assert {p.category for p in pairs} == {f"topic {n}" for n in range(4)}
    assert load_pairs(workspace, made.id) == pairs


def test_content_hash_does_not_depend_on_the_order_of_import(tmp_path: Path) -> None:
    hashes = set()
    for name, reverse in (("one", False), ("two", True)):
        workspace = Workspace.create(tmp_path / name)
        fill(workspace, reverse=reverse)
        hashes.add(create_snapshot(workspace, "all", Selection(), None).content_hash)
    assert len(hashes) == 1


def test_a_snapshot_never_changes(workspace: Workspace) -> None:
    fill(workspace, prompts=10)
    first = create_snapshot(workspace, "train", Selection(), None)
    again = create_snapshot(workspace, "train", Selection(), None)
    assert first.created
    assert not again.created
    assert first.id == again.id
    assert create_snapshot(workspace, "same", Selection(), None).content_hash == first.content_hash
    pairs = load_pairs(workspace, "train")
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(pairs[0].comparison_id, "discarded", None, "test", "no good")], None)
    with pytest.raises(BadInputError, match="exists with other content"):
        create_snapshot(workspace, "train", Selection(), None)
    assert load_pairs(workspace, "train") == pairs
    assert {s.name for s in list_snapshots(workspace)} == {"train", "same"}


@pytest.mark.parametrize("by", ["prompt", "category"])
def test_split_is_deterministic_complete_and_cuts_no_group(workspace: Workspace, by: Any) -> None:
    fill(workspace)
    train, held = create_split(workspace, "a", Selection(), holdout=0.4, by=by, seed=3, run_id=None)
    again, _ = create_split(workspace, "b", Selection(), holdout=0.4, by=by, seed=3, run_id=None)
    assert train.items + held.items == 80
    assert train.content_hash == again.content_hash

    def groups(name: str) -> set[str]:
        return {p.prompt[-1].text if by == "prompt" else p.category for p in load_pairs(workspace, name)}

    assert groups("a")
    assert groups("a-holdout")
    assert not groups("a") & groups("a-holdout")
    other, _ = create_split(workspace, "c", Selection(), holdout=0.4, by="prompt", seed=4, run_id=None)
    assert other.content_hash != train.content_hash


@pytest.mark.parametrize("by", ["prompt", "category"])
def test_prompts_that_differ_in_case_and_space_only_are_never_split(workspace: Workspace, by: Any) -> None:
    rows = []
    for n in range(60):
        for text in (f"What is {n}?", f"what  is {n}? ", f"WHAT IS\n{n}?"):
            turns = [{"role": "user", "content": text}]
            rows.append({"messages": turns, "first": f"good {n}", "second": f"bad {n}", "label": "first"})
    table = [{"row": i, "source": "s", "record_id": str(i), **r} for i, r in enumerate(rows)]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(table, schema=pair_schema()), None)
    create_split(workspace, "t", Selection(), holdout=0.5, by=by, seed=1, run_id=None)
    sides = [
        {" ".join(p.prompt[-1].text.lower().split()) for p in load_pairs(workspace, name)}
        for name in ("t", "t-holdout")
    ]
    assert len(sides[0]) + len(sides[1]) == 60
    assert not sides[0] & sides[1]


def test_selection_by_pool_source_and_category(workspace: Workspace) -> None:
    fill(workspace)
    assert create_snapshot(workspace, "odd", Selection(sources=("odd",)), None).items == 40
    assert create_snapshot(workspace, "topic", Selection(categories=("topic 1", "topic 2")), None).items == 40
    pair = load_pairs(workspace, "odd")[0]
    with workspace.store.unit() as db:
        row = db.execute("SELECT label FROM pools WHERE comparison_id = ?", [pair.comparison_id]).fetchone()
        assert row is not None
        flipped: Any = "B" if row[0] == "A" else "A"
        insert_decisions(db, [Decision(pair.comparison_id, "gold", flipped, "vote", "r", margin=1.5)], None)
    assert create_snapshot(workspace, "gold", Selection(pools=("gold",)), None).pools == {"gold": 1}
    (gold,) = load_pairs(workspace, "gold")
    assert (gold.chosen, gold.rejected, gold.margin) == (pair.rejected, pair.chosen, 1.5)


def test_mistakes_are_named(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="would be empty: the store is empty"):
        create_snapshot(workspace, "x", Selection(), None)
    fill(workspace, prompts=2)
    with pytest.raises(BadInputError, match="the pools hold 4 unverified"):
        create_snapshot(workspace, "x", Selection(pools=("gold",)), None)
    with pytest.raises(
        BadInputError, match="'x' would be empty: none of the 4 labelled comparisons falls to its share"
    ):
        create_snapshot(workspace, "x", Selection(slice=HashSlice(0.0, 1e-9)), None)
    with pytest.raises(BadInputError, match="'x' would be empty: the pools hold 4 unverified"):
        create_snapshot(workspace, "x", Selection(pools=("gold",), slice=HashSlice(0.0, 0.5)), None)
    with pytest.raises(BadInputError, match="unknown pool 'best'"):
        Selection(pools=("best",))
    with pytest.raises(BadInputError, match="is not a snapshot name"):
        create_snapshot(workspace, "../x", Selection(), None)
    with pytest.raises(BadInputError, match="from low to high"):
        HashSlice(0.5, 0.5)
    with pytest.raises(NotFoundError, match="no snapshot 'y'"):
        get_snapshot(workspace, "y")


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_export_reads_back_as_the_same_pairs(workspace: Workspace, tmp_path: Path, name: str) -> None:
    fill(workspace)
    create_snapshot(workspace, "all", Selection(), None)
    report = export(workspace, tmp_path / name, "all")
    assert (report.pairs, report.undecided) == (79, 1)
    assert read_pair_file(tmp_path / name) == load_pairs(workspace, "all")
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_export_to_parquet_and_of_a_selection(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace)
    export(workspace, tmp_path / "odd.parquet", Selection(sources=("odd",)))
    rows = pq.read_table(tmp_path / "odd.parquet").to_pylist()
    assert len(rows) == 40
    assert rows[0]["chosen"][0]["role"] == "assistant"
    with pytest.raises(BadInputError, match="must end in"):
        export(workspace, tmp_path / "odd.xlsx", Selection())
    with pytest.raises(BadInputError, match="nothing to export"):
        export(workspace, tmp_path / "gold.jsonl", Selection(pools=("gold",)))
    assert not (tmp_path / "gold.jsonl").exists()


def test_written_pairs_read_back(tmp_path: Path) -> None:
    prompt = (Message("system", "Be brief."), Message("user", "ключ \u2028 \x00?"))
    pair = PreferencePair(prompt, "yes\n", " no", margin=0.5, source="s", category="c")
    assert write_pairs(tmp_path / "p.jsonl.gz", [pair]) == 1
    (back,) = read_pair_file(tmp_path / "p.jsonl.gz")
    assert back.comparison_id.startswith("c-")
    assert (back.prompt, back.chosen, back.rejected, back.margin) == (prompt, "yes\n", " no", 0.5)


def test_pair_files_name_the_bad_row(tmp_path: Path) -> None:
    good = {"prompt": "p", "chosen": "c", "rejected": "r"}
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in (good, {**good, "chosen": None, "rejected": None}, good)))
    assert len(read_pair_file(path)) == 2
    path.write_text("\n".join(json.dumps(r) for r in (good, {**good, "prompt": ""})))
    with pytest.raises(BadInputError, match=r"p\.jsonl, row 2, field 'prompt': empty"):
        read_pair_file(path)
    path.write_text(json.dumps({**good, "rejected": ""}))  # which training leaves out
    assert read_pair_file(path)[0].rejected == ""
    path.write_text("")
    with pytest.raises(BadInputError, match="holds no decided pair"):
        read_pair_file(path)


def test_pairs_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("prompt,chosen,rejected\nWhy?,So.,No.\n", encoding="utf-8")
    (pair,) = read_pair_file(path)
    assert (pair.prompt[0].content, pair.chosen, pair.rejected) == ("Why?", "So.", "No.")
    path.write_text("prompt,chosen\nWhy?,So.\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"p\.csv, row 1, field 'rejected': missing"):
        read_pair_file(path)


def test_snapshot_or_file(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace, prompts=2)
    create_snapshot(workspace, "train", Selection(), None)
    export(workspace, tmp_path / "f.jsonl", "train")
    assert load_pairs_or_file(workspace, "train") == load_pairs_or_file(None, tmp_path / "f.jsonl")
    with pytest.raises(NotFoundError, match="neither a snapshot"):
        load_pairs_or_file(workspace, "nothing")
    with pytest.raises(NotFoundError, match=r"; did you mean train\?$"):
        load_pairs_or_file(workspace, "trian")
    slip = str(tmp_path / "ff.jsonl")
    for here in (workspace, None):
        with pytest.raises(NotFoundError, match=rf"; did you mean {tmp_path / 'f.jsonl'}\?$"):
            load_pairs_or_file(here, slip)
    with pytest.raises(NotFoundError, match=r"no snapshot 'trian'; there are: train; did you mean train\?$"):
        get_snapshot(workspace, "trian")
    with pytest.raises(NotFoundError, match="no such file"):
        load_pairs_or_file(None, "nothing")
