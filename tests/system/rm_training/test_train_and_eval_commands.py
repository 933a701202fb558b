"""`assay train bt` and `assay eval` as a user runs them: to a calibrated model with lineage, and their complaints."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run, exit_code
from pair_files import write_pairs

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.models.spec import RewardModelSpec
from assay.runs import model_run
from assay.runs.json_log import read_metrics
from assay.runs.model_run import reserved_folder
from assay.runs.process import FILE as PROCESS
from assay.runs.process import process_of
from assay.runs.record import locate_model
from assay.system.name_lock import locked_name
from assay.workspace import Workspace
from assay_rm_training.training import loop as trainer

WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]
FAST = ("--base", "tiny", "--lr", "0.005", "--head-lr", "0.005", "--batch-size", "8", "--device", "cpu")


def pairs_file(path: Path, count: int, seed: int) -> Path:
    rng = random.Random(seed)
    pairs = []
    for number in range(count):
        text = " ".join(rng.choices(WORDS, k=3))
        prompt = (Message("user", f"{seed}-{number}"),)
        pairs.append(PreferencePair(prompt, f"{text}!", f"{text}?", source=rng.choice(["a", "b"])))
    write_pairs(path, pairs)
    return path


@pytest.fixture(scope="module")
def train_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pairs_file(tmp_path_factory.mktemp("pairs") / "train.jsonl", 64, 1)


@pytest.fixture(scope="module")
def held_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pairs_file(tmp_path_factory.mktemp("pairs") / "held.jsonl", 40, 2)


def test_from_pairs_to_a_calibrated_model(workspace: Workspace, train_file: Path, held_file: Path, assay: Run) -> None:
    where = ("-w", workspace.root)
    code, out, err = assay(
        "train", "bt", "--data", train_file, "--eval-data", held_file, *FAST, "--epochs", "2", "--name", "good",
        "--lora", "4", "--json", *where,
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    assert told["parity"] == "passed"
    assert told["evaluation"]["accuracy"]["value"] > 0.8
    assert told["evaluation"]["length_baseline"] == 0.0
    folder = workspace.models / "good"
    assert {"model.safetensors", "config.json", "tokenizer.json", "assay.json", "README.md"} <= {
        path.name for path in folder.iterdir()
    }
    assert "| contamination | not checked: no benchmark was registered |" in (folder / "README.md").read_text()
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.run_id == told["run_id"]
    assert locate_model(workspace, "good") == (str(folder), told["artifact_id"])
    run = workspace.runs / told["run_id"]
    assert len([row for row in read_metrics(run) if row["kind"] == "train"]) == 16
    assert not (run / "state.pt").exists()  # the checkpoint takes its place
    with workspace.store.unit() as db:
        links = db.execute("SELECT direction, kind, ref FROM run_links WHERE run_id = ?", [told["run_id"]]).fetchall()
    assert ("input", "file", str(train_file)) in links
    assert ("output", "artifact", told["artifact_id"]) in links

    code, out, err = assay("eval", "--model", "good", "--data", held_file, "--calibrate", *where)
    assert code == 0, err
    assert re.search(r"accuracy \(a tie is wrong\)\s+│ [01]\.\d{4}", out)
    assert "calibrated: temperature" in out
    calibrated = RewardModelSpec.read(folder)
    assert calibrated is not None
    assert calibrated.calibration is not None
    assert calibrated.calibration.pairs == 40
    assert calibrated.version == spec.version
    assert calibrated.calibration.measured["folds"] == 5  # the figures are not of the pairs it was fitted on

    code, out, _ = assay("eval", "--model", "good", "--data", held_file, "--json", *where)
    again = json.loads(out)
    assert again["accuracy"]["value"] == told["evaluation"]["accuracy"]["value"]
    assert again["calibrated"]["nll"] < again["calibration"]["nll"]
    assert again["notes"] == ["its calibration was fitted on these pairs: the calibrated metrics are biased upwards"]
    assert len((Path(again["folder"]) / "items.jsonl").read_text().splitlines()) == 40

    # the data it was trained on is no held-out data, whatever it is called
    assert told["evaluated_seen"] == 0
    _, out, _ = assay("eval", "--model", "good", "--data", train_file, *where)
    assert "note: the model was trained on these pairs: every metric is biased upwards" in out
    code, out, err = assay("calibrate", "--model", "good", "--data", train_file, "--json", *where)
    assert (code, json.loads(out)["trained_on"]) == (0, True), err


@pytest.mark.slow
def test_an_existing_model_is_not_overwritten(workspace: Workspace, train_file: Path, assay: Run) -> None:
    command = ("train", "bt", "--data", train_file, *FAST, "--name", "one", "-w", workspace.root)
    assert assay(*command)[0] == 0
    before = (workspace.models / "one" / "model.safetensors").read_bytes()
    code, _, err = assay(*command)
    assert code == 2
    assert err.splitlines()[-1] == (
        "assay: a model 'one' exists; choose another --name, or --force to write a new version of it"
    )
    code, out, _ = assay(*command, "--force", "--json", "--base", "one")
    assert code == 0
    told = json.loads(out)
    assert told["model"] == "one-v2"
    assert told["new_head"] is False  # it went on from its own head
    assert (workspace.models / "one" / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_two_that_make_a_model_of_one_name_do_not_mix(workspace: Workspace, train_file: Path, assay: Run) -> None:
    """Whatever makes it: the second is refused and leaves no run; with --force it makes the version after."""
    code, _, err = assay("train", "bt", "--data", train_file, *FAST, "--name", "a", "-w", workspace.root)
    assert code == 0, err
    bases = (workspace.models / "a", shutil.copytree(workspace.models / "a", workspace.models / "b"))
    data = ("--data", train_file, "--device", "cpu", "--name", "one", "-w", workspace.root)
    ways = {
        "bt": ("train", "bt", "--base", "tiny", *data),
        "probe": ("train", "probe", "--base", "tiny", *data),
        "ensemble": ("ensemble", *bases, *data),
        "merge": ("merge", *bases, "--allow-barrier", *data),
    }
    with workspace.store.unit() as db:
        (before,) = db.execute("SELECT count(*) FROM runs").fetchall()
    with reserved_folder(workspace, "one", force=False) as (folder, told):
        told("run-of-another")
        for way, command in ways.items():
            code, _, err = assay(*command)
            assert (code, "run-of-another is making it; choose another --name" in err) == (2, True), (way, err)
        with workspace.store.unit() as db:
            assert db.execute("SELECT count(*) FROM runs").fetchall() == [before]
        code, out, err = assay(*ways["bt"], "--force", "--json")
        assert code == 0, err
        assert json.loads(out)["model"] == "one-v2"
        assert not folder.exists()
    assert assay(*ways["probe"])[0] == 0
    assert folder.is_dir()
    assert not list(workspace.models.glob(".*")), "no claim is left behind"


def test_a_name_that_is_given_while_its_folder_is_waited_for(workspace: Workspace, monkeypatch: Any) -> None:
    """Between the look at the folder and the claim another run ends well."""
    real = locked_name

    @contextmanager
    def late(target: Path) -> Iterator[Any]:
        if target.name in ("one", "one-v2"):
            target.mkdir()
        with real(target) as told:
            yield told

    monkeypatch.setattr(model_run, "locked_name", late)
    with reserved_folder(workspace, "one", force=True) as (folder, _):
        assert folder == workspace.models / "one-v3"
    shutil.rmtree(workspace.models / "one")
    with pytest.raises(BadInputError, match="a model 'one' exists"), reserved_folder(workspace, "one", force=False):
        pass
    assert not list(workspace.models.glob(".*"))


def test_an_interrupted_run_is_resumed(
    workspace: Workspace, train_file: Path, assay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-w", workspace.root)
    command = ("train", "bt", "--data", train_file, *FAST, "--save-every", "2", "--json", *where)
    code, out, _ = assay(*command, "--name", "whole")
    whole = json.loads(out)
    step, calls = trainer.train_step, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            another = workspace.runs / "run-29991231-000000-abcdef"  # of another process, begun later and saved, too
            shutil.copytree(max(workspace.runs.glob("*")), another)
            process = process_of(another)
            assert process is not None
            (another / PROCESS).write_text(json.dumps(asdict(replace(process, pid=os.getppid()))), encoding="utf-8")
            raise KeyboardInterrupt
        return step(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", interrupted)
        code, _, err = assay(*command, "--name", "broken")
    shutil.rmtree(workspace.runs / "run-29991231-000000-abcdef")
    assert code == 130
    found = re.search(r"resume with: assay train bt --resume (run-\S+)", err)
    assert found
    assert not (workspace.models / "broken").exists()
    (workspace.models / "broken").mkdir()  # somebody took the name meanwhile: the training is not lost
    assert assay("train", "bt", "--resume", found[1], *where)[0] == 2
    for asked, message in (
        (("odin",), "the run is of assay train bt, not odin"),
        (("bt", "--epochs", "9"), "--epochs"),
    ):
        code, _, err = assay("train", *asked, "--resume", found[1], "--name", "other", *where)
        assert (code, message in err) == (2, True), err
    assert exit_code("data", "benchmarks", "add", "later", train_file, *where) == 0  # the data were checked before
    code, _, err = assay("train", "bt", "--data", train_file, *FAST, "--name", "new", *where)
    assert (code, "is not checked against benchmark 'later'" in " ".join(err.split())) == (2, True), err
    code, out, err = assay("train", "bt", "--resume", found[1], "--name", "mended", "--json", *where)
    assert code == 0, err
    warning = "not checked against benchmark 'later', registered after this run began"
    assert f"WARNING: {warning}" in err
    told = json.loads(out)
    assert told["warnings"] == [warning]
    assert [use["state"] for use in told["contamination_lineage"]] == ["not_checked"]
    assert warning in (workspace.models / "mended" / "README.md").read_text()
    assert told["model"] == "mended"
    assert (workspace.models / "mended" / "model.safetensors").read_bytes() == (
        workspace.models / "whole" / "model.safetensors"
    ).read_bytes()
    for run, said in ((told["run_id"], "is finished"), (found[1], f"was finished by {told['run_id']}")):
        code, _, err = assay("train", "bt", "--resume", run, *where)
        assert code == 2
        assert f"{run} {said}: there is nothing to resume" in err
    code, _, err = assay("eval", "--model", "mendet", "--data", train_file, *where)
    assert code == 3
    assert "no model 'mendet'; the workspace has mended" in err
    rows, expected = (read_metrics(workspace.runs / t["run_id"]) for t in (told, whole))
    assert [row["loss"] for row in rows] == [row["loss"] for row in expected]
    assert not list(workspace.runs.glob("*/state.pt"))


@pytest.mark.slow
def test_the_last_interrupted_run_of_a_name_is_resumed_by_the_same_command(
    workspace: Workspace, train_file: Path, assay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (
        "train",
        "bt",
        "--data",
        train_file,
        *FAST,
        "--save-every",
        "2",
        "--resume",
        "last",
        "-w",
        workspace.root,
    )
    code, _, err = assay(*command, "--name", "whole")
    assert code == 0, err  # there was none to resume
    step, calls = trainer.train_step, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return step(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", interrupted)
        assert assay(*command, "--name", "again")[0] == 130
    code, _, err = assay(*command, "--name", "again", "--lr", "0.5")
    assert (code, "has other settings (lr): give those or another --name" in err) == (2, True), err
    code, _, err = assay(*command, "--name", "again")
    assert code == 0, err
    assert (workspace.models / "again" / "model.safetensors").read_bytes() == (
        workspace.models / "whole" / "model.safetensors"
    ).read_bytes()
    assert not list(workspace.runs.glob("*/state.pt"))


@pytest.mark.slow
def test_eval_works_without_a_workspace(
    workspace: Workspace, train_file: Path, held_file: Path, assay: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", "bt", "--data", train_file, "--eval-data", held_file, *FAST, "--dtype", "bfloat16")
    code, out, err = assay(*command, "--name", "m", "-w", workspace.root)
    assert code == 0, err
    assert "in bfloat16 on cpu, evaluated in float32" in out
    shutil.copytree(workspace.models / "m", tmp_path / "alone" / "m")
    monkeypatch.chdir(tmp_path / "alone")
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    code, out, err = assay("eval", "--model", "m", "--data", held_file, "--json", "--out", "figures")
    assert code == 0, err
    told = json.loads(out)
    assert told["run_id"] is None
    assert json.loads(Path("figures/evaluation.json").read_text())["accuracy"] == told["accuracy"]


def test_complaints_are_one_clear_line(workspace: Workspace, train_file: Path, assay: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    long = tmp_path / "long.jsonl"
    write_pairs(long, [PreferencePair((Message("user", "q"),), "a" * 300, "b")])
    base = ("train", "bt", "-w", workspace.root)
    for arguments, code, message in (
        ((*base, "--data", train_file, "--base", "nonsense"), 3, "no model 'nonsense'"),
        ((*base, "--data", empty, *FAST), 2, "holds no decided pair"),
        (
            (*base, "--data", long, *FAST, "--max-length", "64"),
            2,
            "chosen does not fit: its response alone passes",
        ),
        ((*base, "--data", "no-such-snapshot", *FAST), 3, "neither a snapshot"),
        ((*base, *FAST), 2, "--data SNAPSHOT"),
        ((*base, "--data", train_file, *FAST, "--schedule", "zigzag"), 2, "unknown schedule 'zigzag'; one of constant"),
        ((*base, "--resume", "run-0"), 3, "not a training run"),
        (("eval", "--model", "tiny", "--data", train_file, "-w", workspace.root), 2, "without a reward head"),
        (("eval", "--model", "gone", "--data", train_file, "-w", workspace.root), 3, "no model 'gone'"),
    ):
        found, _, err = assay(*arguments)
        assert found == code, (arguments, err)
        last = err.strip().splitlines()[-1]
        assert last.startswith("assay: "), err
        assert message in last
        assert "Traceback" not in err
    assert not list(workspace.models.iterdir())
