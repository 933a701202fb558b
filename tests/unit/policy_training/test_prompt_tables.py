"""Prompts from every kind of table, with columns by name, mixtures and held-out sets: each wrong row is named."""

import csv
import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from assay.errors import BackendError, BadInputError, NotFoundError
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.mixtures import (
    SET,
    absolute_source,
    held_out_sets,
    load_mixture,
    mixed_order,
    split_weight,
)
from assay_policy_training.plugins.prompts.source import Shuffled, load_prompts
from assay_policy_training.plugins.prompts.streams import Mixed
from assay_serving.verifiers import MathAnswer

VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "How many?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "72"},
    "extra_info": {"split": "train", "index": 0},
}
ROWS = [{"prompt": "2+2?", "answer": "4"}, {"prompt": "3+3?", "answer": "6"}]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(items: list[PromptItem]) -> list[str]:
    return [item.prompt[-1].text for item in items]


def test_every_table_gives_the_same_prompts(tmp_path: Path) -> None:
    import datasets

    jsonl(tmp_path / "rows.jsonl", ROWS)
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    for name, delimiter in (("rows.csv", ","), ("rows.tsv", "\t")):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, ["prompt", "answer"], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(ROWS)
    table = datasets.Dataset.from_list(ROWS)
    table.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"test": table}).save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "folder").mkdir()
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "folder" / "train-0.parquet")
    expected = load_prompts(str(tmp_path / "rows.jsonl"), seed=0)
    assert texts(expected) == ["2+2?", "3+3?"]
    assert expected[0].constraints == (MathAnswer("4"),)
    for name in ("rows.parquet", "rows.csv", "rows.tsv", "saved", "splits:test"):
        assert load_prompts(f"{tmp_path}/{name}", seed=0) == expected, name
    assert load_prompts(f"hf:{tmp_path}/folder", seed=0) == expected
    assert load_prompts(f"hf:{tmp_path}/folder:train", seed=0) == expected
    with pytest.raises(NotFoundError, match="has no split 'dev'; it has test"):
        load_prompts(f"{tmp_path}/splits:dev", seed=0)


def test_rows_of_verl_state_their_answer(tmp_path: Path) -> None:
    code = {**VERL, "ability": "code", "reward_model": {"ground_truth": "[1]"}}
    parquet.write_table(pa.Table.from_pylist([VERL, code]), tmp_path / "verl.parquet")
    maths, other = load_prompts(str(tmp_path / "verl.parquet"), seed=0)
    assert maths.constraints == (MathAnswer("72"),)
    assert other.constraints == ()
    assert maths.meta["reward_model"] == VERL["reward_model"]
    assert not maths.as_text


def test_columns_by_name_and_by_custom(tmp_path: Path) -> None:
    rows = [{"ask": "2+2?", "info": {"right": 4}, "day": date(2026, 1, 2), "empty": None}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    (item,) = load_prompts(str(tmp_path / "t.parquet"), seed=0, columns={"prompt": "ask", "answer": "info.right"})
    assert (texts([item]), item.constraints, item.as_text) == (["2+2?"], (MathAnswer("4"),), True)
    assert item.meta["day"] == "2026-01-02"
    assert "empty" not in item.meta
    with pytest.raises(BadInputError, match=r"row 1.*asks.*no such column; there are ask, info, day"):
        load_prompts(str(tmp_path / "t.parquet"), seed=0, columns={"prompt": "asks"})
    for column in ("question", "problem", "messages"):
        value: Any = [{"role": "user", "content": "Hi"}] if column == "messages" else "Hi"
        assert texts(load_prompts(str(jsonl(tmp_path / "c.jsonl", [{column: value}])), seed=0)) == ["Hi"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"prompt": "x"}\n\n{"prompt"}\n', r"a\.jsonl.*row 3.*broken JSON"),
        ("a.jsonl", b'{"prompt": ""}\n', r"a\.jsonl.*row 1.*prompt"),
        ("a.csv", b"prompt,answer\nx,1\ny\n", r"a\.csv.*row 2.*another number of columns"),
        ("a.csv", b"prompt,answer\n", "holds no prompts"),
        ("a.csv", b"ask,right\nx,1\n", r"row 1, field 'prompt': missing; there are ask, right"),
        ("a.csv", b"prompt\nx\n\xff\n", r"a\.csv, row \d: cannot be read as CSV: 'utf-8' codec"),
        ("a.parquet", b"PAR", r"a\.parquet.*cannot be read as Parquet"),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        load_prompts(str(tmp_path / name), seed=0)


@pytest.mark.slow
def test_what_is_no_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot load hf:"):
        load_prompts(str(tmp_path), seed=0)
    with pytest.raises(BackendError, match="cannot load hf:nobody/nothing"):
        load_prompts("hf:nobody/nothing", seed=0)
    with pytest.raises(BadInputError, match="no such file or snapshot"):
        load_prompts("nothing", seed=0)


def test_prompts_of_a_snapshot(workspace: Workspace) -> None:
    from assay.data.snapshots import Selection, create_snapshot, load_pairs
    from assay.store.intake import pair_schema, store_pairs

    rows = [
        {
            "row": n,
            "messages": [{"role": "user", "content": f"question {n // 2}"}],
            "first": f"good {n}",
            "second": f"bad {n}",
            "label": "first",
            "strength": 2,
            "source": "exam",
            "record_id": str(n),
            "category": "topic",
        }
        for n in range(6)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
    create_snapshot(workspace, "some", Selection(), None)
    pairs = load_pairs(workspace, "some")
    items = load_prompts("some", seed=0, workspace=workspace)
    assert {item.prompt for item in items} == {pair.prompt for pair in pairs}
    assert len(items) == len({pair.prompt for pair in pairs}) == 3
    assert items[0].meta == {"source": "exam", "category": "topic"}


def test_a_mixture_draws_by_weight(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", [{"prompt": f"a{n}", "source": "x"} for n in range(50)])
    b = jsonl(tmp_path / "b.jsonl", [{"prompt": f"b{n}"} for n in range(3)])
    sources = (f"{a}@0.7", f"{b}@0.3")
    order = mixed_order(sources, Shuffled())
    assert order == Mixed({"a.jsonl": 0.7, "b.jsonl": 0.3}, key=SET)
    items = load_mixture(sources, seed=0)
    assert items[0].meta == {"source": "x", SET: "a.jsonl"}
    drawn = Counter(item.meta[SET] for item in order.open(items, seed=1).next(2000))
    assert abs(drawn["a.jsonl"] / 2000 - 0.7) < 5 * (0.7 * 0.3 / 2000) ** 0.5  # five standard errors
    assert len(load_mixture((str(a), str(b)), seed=0)) == 53
    assert mixed_order((str(a), str(b)), Shuffled()) == Shuffled()
    for wrong, message in (
        ((f"{a}@0.7", str(b)), "give each of them one"),
        ((f"{a}@1",), "give each of them one"),
        ((f"{a}@-1", f"{b}@2"), "a weight is a number from 0"),
    ):
        with pytest.raises(BadInputError, match=message):
            mixed_order(wrong, Shuffled())
    with pytest.raises(BadInputError, match="an order of its own"):
        mixed_order(sources, Mixed())
    with pytest.raises(BadInputError, match="have one name"):
        load_mixture((str(a), str(a)), seed=0)
    twice = (f"{a}@1", f"{a}@2")
    mixed_order(twice, Shuffled())  # what is wrong with it is said by the next
    with pytest.raises(BadInputError, match="have one name"):
        load_mixture(twice, seed=0)


def test_sources_by_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "a@2.jsonl", ROWS)
    jsonl(tmp_path / "a.jsonl", ROWS)
    assert split_weight("a@2.jsonl") == ("a@2.jsonl", None)
    assert split_weight("a.jsonl@2") == ("a.jsonl", 2.0)
    assert split_weight("hf:me@home") == ("hf:me@home", None)
    expected = {"a.jsonl@2": f"{tmp_path}/a.jsonl@2", "x=a.jsonl": f"x={tmp_path}/a.jsonl", "constrained:4": None}
    for text, absolute in expected.items():
        assert absolute_source(text) == (absolute or text)
    assert absolute_source("a.jsonl:name") == f"{tmp_path}/a.jsonl:name"


def test_held_out_sets_have_names(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", ROWS)
    sets = held_out_sets((f"sums={file}", str(file), "constrained:4"), 1, seed=0)
    assert {name: len(items) for name, items in sets.items()} == {"sums": 1, "a.jsonl": 1, "constrained:4": 1}
    with pytest.raises(BadInputError, match="two sets are named 'sums'"):
        held_out_sets((f"sums={file}", f"sums={file}"), 1, seed=0)
