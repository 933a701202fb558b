"""`assay data import` and `assay data export` as a user runs them, and the exported files in the peers' own loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main

CONTEXT = [{"role": "user", "content": "Why is the sky blue?"}]


def row(number: int, preference: int) -> dict[str, Any]:
    votes = [{"score": preference, "reasoning": f"Said by person {number}."}]
    sides = {"response1": f"Rayleigh {number}.", "response2": f"Paint {number}."}
    about = {"domain": "general", "language": "english", "context": CONTEXT}
    return {**about, **sides, "overall_preference": preference, "individual_preference": votes}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with four HelpSteer3 preferences, one of them a tie, as the working folder."""
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    path = tmp_path / "train.json"
    path.write_text(json.dumps([row(n, preference) for n, preference in enumerate((-2, 1, 0, 3))]))
    assert run("init", tmp_path / "ws") == 0
    monkeypatch.chdir(tmp_path / "ws")
    assert run("data", "import", path) == 0
    return tmp_path / "ws"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_command_says_what_it_wrote_and_leaves_lineage(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("data", "import", here.parent / "train.json") == 0
    out = capsys.readouterr().out
    assert "recognised HelpSteer3 preferences in a JSON array" in out
    assert "0 new comparisons, 4 known already" in out
    answer(capsys, "data", "snapshot", "train")
    made = answer(capsys, "data", "export", "set", "--snapshot", "train")
    assert (made["format"], made["rows"], made["unit"], made["undecided"]) == ("hf", 3, "pairs", 1)
    card = (here / "set" / "README.md").read_text()
    assert made["run_id"] in card
    assert "| HelpSteer3-preference | CC-BY-4.0 | 3 |" in card
    assert "Said by person" not in card
    tree = answer(capsys, "lineage", "set")
    assert tree["kind"] == "artifact"
    assert "train.json" in json.dumps(tree)
    capsys.readouterr()
    assert run("data", "export", "out.jsonl") == 0
    out = capsys.readouterr().out
    assert "wrote 3 pairs to" in out
    assert "left out 1 comparisons without a chosen side" in out
    assert run("data", "export", "out.jsonl", "--format", "parquet") == 2
    assert "no exporter is named 'parquet'; one of" in capsys.readouterr().err
    assert run("data", "export", "out.jsonl", "--snapshot", "train", "--pool", "gold") == 2


def test_peers_load_the_files(here: Path, tmp_path: Path) -> None:
    """TRL, OpenRLHF, NeMo-RL and verl read through `datasets`; the columns are those that their code takes."""
    datasets = pytest.importorskip("datasets")

    def loaded(name: str, file: str) -> Any:
        assert run("data", "export", file, "--format", name) == 0
        kind = "parquet" if file.endswith(".parquet") else "json"
        cache = str(tmp_path / f"cache-{name}")
        return list(datasets.load_dataset(kind, data_files=str(here / file), split="train", cache_dir=cache))

    for found in loaded("trl", "trl.jsonl"):
        assert found["prompt"] == CONTEXT
        assert [turn["role"] for side in ("chosen", "rejected") for turn in found[side]] == ["assistant"] * 2
        assert isinstance(found["margin"], float)
    for name, file in (("trl-implicit", "implicit.parquet"), ("openrlhf", "openrlhf.jsonl")):
        for found in loaded(name, file):
            assert found["chosen"][:-1] == found["rejected"][:-1] == CONTEXT
            assert found["chosen"][-1]["role"] == found["rejected"][-1]["role"] == "assistant"
            assert found["margin"] in (1.0, 2.0, 3.0)
    for found in loaded("nemo-rl", "nemo.jsonl"):
        assert found["context"] == CONTEXT
        assert [item["rank"] for item in found["completions"]] == [0, 1]
        assert all([turn["role"] for turn in item["completion"]] == ["assistant"] for item in found["completions"])
    (found,) = loaded("verl", "verl.parquet")
    assert (found["data_source"], found["ability"]) == ("HelpSteer3-preference", "general")
    assert found["prompt"] == CONTEXT
    assert (found["reward_model"]["style"], found["extra_info"]["index"]) == ("model", 0)
    assert len(found["extra_info"]["comparisons"]) == 3
