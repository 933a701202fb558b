"""Contamination is not laundered: bases, early stopping, calibration, merges, ensembles; carried in the checkpoint."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assay.cli.main import main
from assay.data.pairs import write_pairs
from assay.domain import Message, PreferencePair
from assay.workspace import Workspace

Run = Callable[..., tuple[int, str, str]]
FAST = ("--base", "tiny", "--lr", "0.005", "--head-lr", "0.005", "--batch-size", "8", "--device", "cpu")
WAIVED = "bench: training data of dirty: not checked, waived: a trial"


class Setting(NamedTuple):
    """A workspace with a registered benchmark, the model `dirty` that was trained with a waiver, and files of pairs."""

    root: Path
    bench: Path
    clean: Path


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


def pairs_file(path: Path, seed: int, count: int = 40) -> Path:
    rng = random.Random(seed)
    pairs = []
    for number in range(count):
        text = " ".join(rng.choices(["red", "blue", "tree", "stone", "river"], k=3))
        pairs.append(PreferencePair((Message("user", f"question {seed} number {number}"),), f"{text}!", f"{text}?"))
    write_pairs(path, pairs)
    return path


@pytest.fixture(scope="module")
def setting(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Setting:
    folder = tmp_path_factory.mktemp("lineage")
    root = shutil.copytree(empty_workspace, folder / "workspace")
    bench, clean = pairs_file(folder / "bench.jsonl", 1), pairs_file(folder / "clean.jsonl", 2)
    assert run("train", "bt", "--data", clean, *FAST, "--name", "pure", "-w", root) == 0  # nothing is registered yet
    assert run("data", "benchmarks", "add", "bench", bench, "-w", root) == 0
    assert run("data", "import", clean, "-w", root) == 0
    assert run("data", "snapshot", "checked", "-w", root) == 0
    assert run("data", "decontaminate", "-w", root) == 0
    waive = ("--waive-contamination", "bench=a trial")
    assert run("train", "bt", "--data", bench, *FAST, "--name", "dirty", *waive, "-w", root) == 0
    return Setting(root, bench, clean)


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; returns (exit code, standard output, standard error)."""

    def invoke(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(*arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return invoke


def spec_of(setting: Setting, name: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((Workspace.open(setting.root).models / name / "assay.json").read_text())
    return payload


def uses(spec: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(use["model"], use["use"], use["state"]) for use in spec["contamination"]]


def test_a_clean_training_on_a_contaminated_base_stays_contaminated(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assay: Run
) -> None:
    code, out, err = assay(
        "train", "bt", "--data", "checked", *FAST, "--base", "dirty", "--name", "washed", "-w", setting.root
    )
    assert code == 0, err
    assert WAIVED in " ".join(out.split())
    assert uses(spec_of(setting, "washed")) == [("washed", "training", "clean"), ("dirty", "training", "not_checked")]
    folder = Workspace.open(setting.root).models / "washed"
    assert WAIVED in (folder / "README.md").read_text()
    code, out, err = assay("eval", "--data", setting.bench, "--model", "washed", "-w", setting.root)
    assert code == 0, err
    assert WAIVED in " ".join(out.split())
    # outside a workspace the checkpoint itself says so
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    code, out, err = assay("eval", "--data", setting.bench, "--model", elsewhere)
    assert code == 0, err
    assert WAIVED in " ".join(out.split())
    code, out, err = assay("eval", "--bench", "pairs", "--path", setting.bench, "--model", elsewhere)
    assert code == 0, err
    assert WAIVED in " ".join(out.split())


def test_a_registered_benchmark_does_not_choose_the_step(setting: Setting, assay: Run) -> None:
    options = (
        "train", "bt", "--data", "checked", *FAST, "--eval-data", setting.bench, "--eval-every", "2", "--keep", "best",
        "--name", "chosen", "-w", setting.root,
    )  # fmt: skip
    code, _, err = assay(*options)
    assert code == 2
    assert "40 of its prompts are in the benchmark 'bench', which is not for selection" in " ".join(err.split())
    code, _, err = assay(*options, "--waive-contamination", "bench=on purpose")
    assert code == 0, err
    assert ("chosen", "selection", "overlaps") in uses(spec_of(setting, "chosen"))
    assert "40 overlaps, waived: on purpose" in (Workspace.open(setting.root).models / "chosen/README.md").read_text()


def test_a_registered_benchmark_does_not_calibrate(setting: Setting, assay: Run) -> None:
    for command in (("calibrate",), ("eval", "--calibrate")):
        code, _, err = assay(*command, "--model", "pure", "--data", setting.bench, "-w", setting.root)
        assert code == 2, command
        assert "which is not for calibration" in " ".join(err.split())
    assert spec_of(setting, "pure")["calibration"] is None
    code, _, err = assay(
        "calibrate", "--model", "pure", "--data", setting.bench, "--method", "temperature",
        "--waive-contamination", "bench=on purpose", "-w", setting.root,
    )  # fmt: skip
    assert code == 0, err
    assert ("pure", "calibration", "overlaps") in uses(spec_of(setting, "pure"))
    assert "on purpose" in (Workspace.open(setting.root).models / "pure" / "README.md").read_text()


def test_merges_and_ensembles_inherit_from_their_members(setting: Setting, assay: Run) -> None:
    where = ("-w", setting.root)
    code, _, err = assay(
        "merge", "pure", "dirty", "--data", setting.clean, "--name", "merged", "--allow-barrier", *where
    )
    assert code == 0, err
    assert ("dirty", "training", "not_checked") in uses(spec_of(setting, "merged"))
    models = Workspace.open(setting.root).models
    assert WAIVED in (models / "merged" / "README.md").read_text()
    code, _, err = assay("ensemble", "pure", "dirty", "--data", setting.clean, "--name", "both", *where)
    assert code == 0, err
    assert WAIVED in (models / "both" / "README.md").read_text()
    code, out, err = assay("eval", "--data", setting.bench, "--model", "both", *where)
    assert code == 0, err
    assert WAIVED in " ".join(out.split())
