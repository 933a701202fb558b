"""Exports as the data loaders of the trainers they are for read them: LLaMA-Factory's, OpenRLHF's and verl's own code
in the environments of `make peers-env` (without one its test skips), TRL's and `datasets`' in this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peer_programs import said_by
from typed_rows import CALL, CALLED, CALLS, PICTURE, PLAIN, THOUGHT, TOOL, filled

from assay.data.snapshots import Selection
from assay_pipelines.exporters.export import export

ROWS = (PLAIN, CALLED, CALLS, THOUGHT, PICTURE)


def row_of(rows: list[Any], text: str) -> Any:
    (found,) = [row for row in rows if text in json.dumps(row)]
    return found


@pytest.mark.slow
def test_llamafactorys_converter(tmp_path: Path) -> None:
    workspace = filled(tmp_path, *ROWS)
    out = tmp_path / "out"
    out.mkdir()
    export(workspace, out / "shared.jsonl", Selection(), format="llama-factory")
    export(workspace, out / "alpaca.jsonl", Selection(), format="llama-factory-alpaca")
    read = said_by("llamafactory", "llamafactory_dataset.py", out, "shared", "alpaca")
    shared, alpaca = read["shared.jsonl"], read["alpaca.jsonl"]
    assert (len(shared), len(alpaca)) == (4, 2)
    plain = [{"role": "user", "content": "Plain?"}]
    sides = [{"role": "assistant", "content": text} for text in ("good", "bad")]
    for rows in (shared, alpaca):
        found = row_of(rows, "Plain?")
        assert (found["_prompt"], found["_response"]) == (plain, sides)
        picture = row_of(rows, "Colour?")
        assert picture["_prompt"] == [{"role": "user", "content": "<image>Colour?"}]
        assert [Path(image).is_file() for image in picture["_images"]] == [True]
    called = row_of(shared, "Yes.")
    assert [turn["role"] for turn in called["_prompt"]] == ["user", "function", "observation"]
    assert called["_system"] == "Be brief."
    assert json.loads(called["_tools"]) == [TOOL["function"]]
    assert '"town": "Ulm"' in str(called["called"])
    assert "weather" in str(called["defined"])
    assert [turn["role"] for turn in row_of(shared, "I think so.")["_response"]] == ["function", "assistant"]


@pytest.mark.slow(reason="its imports take 8 s of CPU time; its client is in test_peer_clients")
def test_openrlhfs_reward_dataset(tmp_path: Path, tiny_reward_model: Path) -> None:
    rows = [{**row, "tools": None} for row in (PLAIN, CALLED, THOUGHT)]
    export(filled(tmp_path, *rows), tmp_path / "out.jsonl", Selection(), format="openrlhf")
    read = said_by("openrlhf", "openrlhf_dataset.py", tmp_path / "out.jsonl", tiny_reward_model, tmp_path / "cache")
    assert len(read) == 3
    chosen, rejected, _ = row_of(read, "Plain?")
    assert "good" in chosen
    assert "bad" in rejected
    chosen, rejected, _ = row_of(read, "Yes.")
    assert chosen.index("rain") < chosen.index("Yes.")
    assert "No." in rejected


@pytest.mark.slow(reason="its imports take 18 s of CPU time; its clients are in test_peer_clients")
def test_verls_dataset(tmp_path: Path, tiny_reward_model: Path) -> None:
    workspace, paths = filled(tmp_path, *ROWS), [tmp_path / f"out{ending}" for ending in (".jsonl", ".parquet")]
    rows = [export(workspace, path, Selection(), format="verl").rows for path in paths]
    assert rows == [5, 5]
    found = said_by("verl", "verl_dataset.py", tiny_reward_model, tmp_path / "cache", *paths)
    for path, read in zip(paths, found, strict=True):
        check_verls(read, path.suffix)


def check_verls(read: list[Any], ending: str) -> None:
    assert len(read) == 5
    assert sorted(row["index"] for row in read) == list(range(5))
    assert row_of(read, "Plain?")["prompt"][0]["content"] == "Plain?"
    called = row_of(read, "Yes.")
    function = called["prompt"][2]["tool_calls"][0]["function"]
    if ending == ".parquet":  # OpenAI's form: a column of objects would have one type for all tools
        function = function | {"arguments": json.loads(function["arguments"])}
    assert function == CALL["function"]
    assert called["extra"]["tool_selection"] == ["weather"]
    content = row_of(read, "Colour?")["prompt"][0]["content"]
    assert [part["type"] for part in content] == ["image", "text"]


@pytest.mark.slow
def test_trl_and_datasets(tmp_path: Path, tiny_reward_model: Path) -> None:
    import datasets
    from transformers import AutoTokenizer
    from trl import apply_chat_template, extract_prompt, unpair_preference_dataset
    from trl.trainer.utils import remove_none_values

    workspace = filled(tmp_path, *ROWS)
    tokenizer = AutoTokenizer.from_pretrained(tiny_reward_model)

    def loaded(name: str, *rows: dict[str, Any]) -> Any:
        export(filled(tmp_path, *rows) if rows else workspace, tmp_path / "out.jsonl", Selection(), format=name)
        return datasets.load_dataset(
            "json", data_files=str(tmp_path / "out.jsonl"), split="train", cache_dir=str(tmp_path / f"cache-{name}")
        )

    pairs = loaded("trl").with_transform(remove_none_values)
    assert len(pairs) == 5
    called = row_of(list(pairs), "Yes.")
    assert called["prompt"][2]["tool_calls"][0]["function"]["arguments"] == CALL["function"]["arguments"]
    assert json.loads(called["tools"]) == [TOOL]
    texts = loaded("trl", PLAIN, THOUGHT)
    rendered = [apply_chat_template(row, tokenizer) for row in texts.with_transform(remove_none_values)]
    assert {"good", "2"} == {row["chosen"].split("<")[0].strip() for row in rendered}
    implicit = extract_prompt(loaded("trl-implicit", PLAIN)[0])
    assert implicit["prompt"] == [{"role": "user", "content": "Plain?"}]
    unpaired = loaded("kto", PLAIN)
    expected = unpair_preference_dataset(loaded("trl", PLAIN))
    columns = ["prompt", "completion", "label"]
    by_label = {row["label"]: row for row in unpaired.select_columns(columns)}
    assert by_label == {row["label"]: row for row in expected.select_columns(columns)}
    steps = loaded("stepwise", {"prompt": "1 + 1?", "completions": ["one more", "2"], "labels": [True, False]})
    assert steps[0]["completions"] == ["one more", "2"]
    assert steps[0]["labels"] == [True, False]
