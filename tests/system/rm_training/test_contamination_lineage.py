"""Contamination is not laundered: bases, early stopping, calibration, merges, ensembles; carried in the checkpoint."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from assay_command import Run, exit_code
from pair_files import write_pairs

from assay.domain import Message, PreferencePair
from assay.models.contamination import read_uses
from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.process import running_server

FAST = ("--base", "tiny", "--lr", "0.005", "--head-lr", "0.005", "--batch-size", "8", "--device", "cpu")
WAIVED = "bench: training data of dirty: not checked, waived: a trial"


class Setting(NamedTuple):
    """A workspace with a registered benchmark, the model `dirty` that was trained with a waiver, and files of pairs."""

    root: Path
    bench: Path
    clean: Path


def pairs_file(path: Path, seed: int, count: int = 40) -> Path:
    rng = random.Random(seed)
    pairs = []
    for _ in range(count):
        text = " ".join(rng.choices(["red", "blue", "tree", "stone", "river"], k=3))
        question = " ".join("".join(rng.choices("abdegiklmnoprstu", k=7)) for _ in range(6))  # like no other one
        pairs.append(PreferencePair((Message("user", question),), f"{text}!", f"{text}?"))
    write_pairs(path, pairs)
    return path


@pytest.fixture(scope="module")
def setting(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Setting:
    folder = tmp_path_factory.mktemp("lineage")
    root = shutil.copytree(empty_workspace, folder / "workspace")
    bench, clean = pairs_file(folder / "bench.jsonl", 1), pairs_file(folder / "clean.jsonl", 2)
    assert (
        exit_code("train", "bt", "--data", clean, *FAST, "--name", "pure", "-w", root) == 0
    )  # nothing is registered yet
    assert exit_code("data", "benchmarks", "add", "bench", bench, "-w", root) == 0
    assert exit_code("data", "import", clean, "-w", root) == 0
    assert exit_code("data", "snapshot", "checked", "-w", root) == 0
    assert exit_code("data", "decontaminate", "-w", root) == 0
    waive = ("--waive-contamination", "bench=a trial")
    assert exit_code("train", "bt", "--data", bench, *FAST, "--name", "dirty", *waive, "-w", root) == 0
    return Setting(root, bench, clean)


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_registered_benchmark_does_not_calibrate(setting: Setting, assay: Run) -> None:
    train = ("train", "bt", "--data", "checked", *FAST, "--name", "fitted", "-w", setting.root)
    assert exit_code(*train) == 0
    for command in (("calibrate",), ("eval", "--calibrate")):
        code, _, err = assay(*command, "--model", "fitted", "--data", setting.bench, "-w", setting.root)
        assert code == 2, command
        assert "which is not for calibration" in " ".join(err.split())
    assert spec_of(setting, "fitted")["calibration"] is None
    code, _, err = assay(
        "calibrate", "--model", "fitted", "--data", setting.bench, "--method", "temperature",
        "--waive-contamination", "bench=on purpose", "-w", setting.root,
    )  # fmt: skip
    assert code == 0, err
    assert ("fitted", "calibration", "overlaps") in uses(spec_of(setting, "fitted"))
    assert "on purpose" in (Workspace.open(setting.root).models / "fitted" / "README.md").read_text()


@pytest.mark.slow
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


COMPOSED = """
kind: composed
parts: [{name: a, model: pure}, {name: b, model: MEMBER}]
combine: {kind: weighted_sum, weights: {a: 0.5, b: 0.5}}
"""
CARRIED = ("dirty", "training", "not_checked")


@pytest.fixture
def own(setting: Setting, tmp_path: Path) -> Setting:
    """A copy, for tests that change what a snapshot's labels rest on."""
    return setting._replace(root=shutil.copytree(setting.root, tmp_path / "own"))


def composed(folder: Path, member: str, name: str = "both.yaml") -> Path:
    path = folder / name
    path.write_text(COMPOSED.replace("MEMBER", member))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("bench", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_composed_reward_inherits_from_parts_of_parts(
    setting: Setting, tmp_path: Path, assay: Run, bench: bool
) -> None:
    inner = composed(tmp_path, "dirty", "inner.yaml")
    outer = composed(tmp_path, inner.name)
    data = ("--bench", "pairs", "--path", setting.bench) if bench else ("--data", setting.bench)
    code, out, err = assay("eval", *data, "--model", outer, "-w", setting.root)
    assert code == 0, err
    assert WAIVED in " ".join(out.split())
    code, out, err = assay("eval", *data, "--model", composed(tmp_path, "pure", "clean.yaml"), "-w", setting.root)
    assert code == 0, err
    assert "waived" not in out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["model", pytest.param("composed", marks=pytest.mark.slow), "consistency"])
def test_labels_of_a_contaminated_judge_make_what_is_trained_on_them_contaminated(
    own: Setting, tmp_path: Path, assay: Run, how: str
) -> None:
    where = ("-w", own.root)
    if how == "consistency":
        # the decisions are younger than the snapshot's selection, and their labels are what it is made of now
        code, _, err = assay("curate", "consistency", "--model", "dirty", "--keep-above", "0.5", *where)
    else:
        judge = "dirty" if how == "model" else str(composed(tmp_path, "dirty"))
        code, _, err = assay("judge", "run", "--judge", "reward_model", "--model", judge, *where)
    assert code == 0, err
    code, out, err = assay("train", "bt", "--data", "checked", *FAST, "--name", "taught", *where)
    assert code == 0, err
    assert CARRIED in uses(spec_of(own, "taught"))
    assert WAIVED in " ".join(out.split())
    code, out, err = assay("eval", "--data", own.bench, "--model", "taught", *where)
    assert code == 0, err
    assert WAIVED in " ".join(out.split())


@pytest.mark.slow
def test_a_served_reward_states_what_it_carries_and_a_policy_inherits_it(
    own: Setting, tmp_path: Path, assay: Run
) -> None:
    scorer = open_scorer(ModelConfig(str(composed(tmp_path, "dirty")), device="cpu"), workspace=own.root)
    with running_server({"both": scorer}) as server:
        code, out, err = assay("eval", "--bench", "pairs", "--path", own.bench, "--model", server.url, "-w", own.root)
        assert code == 0, err
        assert WAIVED in " ".join(out.split())
        code, out, err = assay(
            "rl", "--recipe", "grpo", "--reward", server.url, "--policy", "tiny", "--prompts", "constrained:2",
            "--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4", "--steps", "1",
            "--name", "policy", "-w", own.root,
        )  # fmt: skip
    assert code == 0, err
    assert WAIVED in " ".join(out.split())
    folder = Workspace.open(own.root).models / "policy"
    assert [(use.model, use.use, use.state) for use in read_uses(folder)] == [CARRIED]
    # what is made of the policy is contaminated, too
    code, out, err = assay(
        "train", "bt", "--data", "checked", *FAST, "--base", "policy", "--name", "of-policy", "-w", own.root
    )
    assert code == 0, err
    assert CARRIED in uses(spec_of(own, "of-policy"))


@pytest.mark.slow(reason="two of the journeys above, in turn")
def test_calibrating_an_ensemble_on_a_benchmark_does_not_change_its_version(own: Setting, assay: Run) -> None:
    where = ("-w", own.root)
    assert exit_code("ensemble", "pure", "dirty", "--data", own.clean, "--name", "pair", *where) == 0
    folder = str(Workspace.open(own.root).models / "pair")
    before = open_scorer(ModelConfig(folder, device="cpu"), workspace=own.root).info
    code, _, err = assay(
        "calibrate", "--model", "pair", "--data", own.bench, "--method", "temperature",
        "--waive-contamination", "bench=on purpose", *where,
    )  # fmt: skip
    assert code == 0, err
    after = open_scorer(ModelConfig(folder, device="cpu"), workspace=own.root).info
    assert {use.use for use in before.contamination} == {"training"}
    assert {use.use for use in after.contamination} == {"training", "calibration"}
    assert after.version == before.version


@pytest.mark.slow(reason="the rule of the step's choice, for another method")
def test_a_registered_benchmark_does_not_choose_a_probes_penalty(own: Setting, assay: Run) -> None:
    options: tuple[str | Path, ...] = ("train", "probe", "--data", "checked", "--base", "tiny", "--gold", own.bench)
    options += ("--device", "cpu", "--name", "probed", "-w", own.root)
    code, _, err = assay(*options)
    assert code == 2
    assert "40 of its prompts are in the benchmark 'bench', which is not for selection" in " ".join(err.split())
    assert not (Workspace.open(own.root).models / "probed").exists()
    code, _, err = assay(*options, "--waive-contamination", "bench=on purpose")
    assert code == 0, err
    assert ("probed", "selection", "overlaps") in uses(spec_of(own, "probed"))
    assert "40 overlaps, waived: on purpose" in (Workspace.open(own.root).models / "probed/README.md").read_text()
