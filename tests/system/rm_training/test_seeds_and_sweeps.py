"""`assay train --seeds` and `--sweep`: what is compared, that nothing is trained twice, and what is refused before."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run
from fastapi.testclient import TestClient
from forked_command import ForkedCommand
from pair_files import write_pairs
from safetensors.numpy import load_file

from assay.domain import Message, PreferencePair
from assay.runs.catalogue import list_runs
from assay.statistics.seeds import seed_interval
from assay.workspace import Workspace
from assay_rm_training.runs.train import TrainingPlan, train_model
from assay_rm_training.training.resume_state import FILE as STATE
from assay_web.app import create_app
from assay_web.settings import WebSettings

WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]
FAST = ("--base", "tiny", "--head-lr", "0.005", "--batch-size", "8", "--device", "cpu")


def pairs_file(path: Path, count: int, seed: int) -> Path:
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=3)) for _ in range(count)]
    write_pairs(
        path, [PreferencePair((Message("user", f"{seed}-{n}"),), f"{t}!", f"{t}?") for n, t in enumerate(texts)]
    )
    return path


@pytest.fixture
def command(workspace: Workspace, tmp_path: Path) -> tuple[str | Path, ...]:
    data, held = pairs_file(tmp_path / "train.jsonl", 24, 1), pairs_file(tmp_path / "held.jsonl", 40, 2)
    return ("train", "bt", "--data", data, "--eval-data", held, *FAST, "--name", "g", "-w", workspace.root)


@pytest.mark.slow
def test_a_sweep_is_ordinary_runs_compared_by_the_rule_that_it_states(
    workspace: Workspace, command: tuple[str | Path, ...], assay: Run
) -> None:
    code, out, err = assay(*command, "--seeds", "2", "--sweep", "lr=0.005,0.0005", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert [run["model"] for run in result["runs"]] == [
        "g-lr0.005-s0",
        "g-lr0.005-s1",
        "g-lr0.0005-s0",
        "g-lr0.0005-s1",
    ]
    by_setting = {one["settings"]["lr"]: one["figures"]["nll"] for one in result["settings"]}
    nll = {run["model"]: run["figures"]["nll"] for run in result["runs"]}
    for lr, mean in by_setting.items():
        values = [nll[f"g-lr{lr}-s{seed}"] for seed in (0, 1)]
        interval = seed_interval(values)
        assert interval is not None
        assert (mean["mean"], mean["low"], mean["high"]) == pytest.approx(
            (sum(values) / 2, interval.low, interval.high)
        )
    assert result["best"]["lr"] == min(by_setting, key=lambda lr: by_setting[lr]["mean"])
    assert result["rule"].startswith("the lowest mean nll over seeds on held.jsonl")
    assert "the best's are too good" in result["rule"]

    runs = list_runs(workspace, group="g")
    assert {(run.kind, run.status) for run in runs} == {("train", "done")}
    assert {run.models for run in runs} == {(run["model"],) for run in result["runs"]}
    assert list_runs(workspace, group="another") == []
    with TestClient(create_app(workspace, WebSettings(open_access=True)), "http://127.0.0.1") as web:
        web.post("/api/session", json={"name": "ada"}).raise_for_status()
        assert web.get("/api/runs", params={"text": "g"}).json()["total"] == 4
        [table] = web.get(f"/api/runs/{runs[0].id}").json()["tables"]
    assert table["title"] == "Runs of g"
    assert {"lr", "seed"} <= set(table["head"])
    assert len(table["rows"]) == 4

    # One more seed and one more value: only what is missing is trained, by the same name.
    code, out, err = assay(*command, "--seeds", "3", "--sweep", "lr=0.005", "--json")
    assert code == 0, err
    assert [run["model"] for run in json.loads(out)["runs"] if run["trained"]] == ["g-lr0.005-s2"]
    code, out, err = assay(*command, "--seeds", "3", "--sweep", "lr=0.005")
    assert (code, "training 1" in err) == (0, False)
    assert "lr" in out
    assert "3/3" in out

    # Other settings or other data under this name would be compared with what they are not.
    code, _, err = assay(*command, "--seeds", "3", "--sweep", "lr=0.005", "--epochs", "2")
    assert code == 2
    assert "g-lr0.005-s0 was trained with other settings (epochs; run-" in err
    pairs_file(Path(command[3]), 24, 7)
    code, _, err = assay(*command, "--seeds", "3", "--sweep", "lr=0.005")
    assert code == 2
    assert "(data_content; run-" in err


def test_a_killed_sweep_goes_on_and_trains_nothing_twice(
    workspace: Workspace, command: tuple[str | Path, ...], assay: Run
) -> None:
    seeds = (*command, "--seeds", "2", "--save-every", "1", "--epochs", "3")
    process = ForkedCommand(*seeds)
    try:  # killed in the second run, once it has saved
        process.until(lambda: any((run / STATE).exists() for run in sorted(workspace.runs.glob("run-*"))[1:]))
    finally:
        process.kill()
    [first] = [run for run in list_runs(workspace, group="g") if run.models == ("g-s0",)]
    code, out, err = assay(*seeds, "--json")
    assert code == 0, err
    assert "training 1 of 1: seed 1 (1 of 2 done before)" in err
    runs = json.loads(out)["runs"]
    assert [run["model"] for run in runs] == ["g-s0", "g-s1"]
    assert (runs[0]["run_id"], runs[0]["trained"], runs[1]["trained"]) == (first.id, False, True)
    finished = [run for run in list_runs(workspace, group="g") if run.status == "done"]
    assert len(finished) == 2
    code, _, err = assay(*seeds[:-6], "--name", "alone", "--seed", "1", "--save-every", "1", "--epochs", "3")
    assert code == 0, err
    resumed, alone = (load_file(workspace.models / name / "model.safetensors") for name in ("g-s1", "alone"))
    assert all((resumed[name] == alone[name]).all() for name in alone)


@pytest.mark.slow
def test_a_run_that_diverges_costs_the_others_nothing(
    workspace: Workspace, command: tuple[str | Path, ...], assay: Run
) -> None:
    code, out, err = assay(*command, "--sweep", "lr=0.005,1e30")
    assert code == 5
    assert "FAILED lr 1e+30, seed 0: step" in out
    assert "1 of 2 trainings failed; the same command tries them again" in err
    assert {run.models: run.status for run in list_runs(workspace)} == {("g-lr0.005-s0",): "done", (): "failed"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", "0"), "field '--seeds': at least 1, not 0"),
        (("--sweep", "learning-rat=1"), "'learning-rat' is no option that can be swept"),
        (("--sweep", "epoch=1,2"), "did you mean epochs?"),
        (("--sweep", "lr="), "field '--sweep': no values: lr=A,B"),
        (("--sweep", "lr=fast"), "field '--sweep': lr: must be a number, not 'fast'"),
        (("--sweep", "lr=1e-4,-1"), "field 'lr': must be above 0"),
        (("--sweep", "loss=hinge,nonsense"), "nonsense"),
        (("--sweep", "lr=1e-4,1e-4"), "lr has a value twice"),
        (("--sweep", "seed=1,2"), "seeds are --seeds N"),
        (("--sweep", "holdout-prompts=0.1,0.2"), "is no option that can be swept"),
        (("--sweep", "lr=1,2,3,4,5", "--sweep", "epochs=1,2,3,4,5,6,7,8", "--seeds", "25"), "are 1000 trainings"),
        (("--seeds", "2", "--resume", "last"), "the same command goes on with what is missing"),
        (("--seeds", "2", "--on", "local:2"), "one process each"),
        (("--seeds", "2", "--final-data", "x.jsonl"), "--eval-every N"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_before_training(
    options: tuple[str, ...], message: str, workspace: Workspace, command: tuple[Any, ...], assay: Run
) -> None:
    code, _, err = assay(*command, *options)
    assert code == 2
    assert message in err.splitlines()[-1]
    assert list_runs(workspace) == []


def test_a_method_that_holds_nothing_out_needs_held_out_data(workspace: Workspace, tmp_path: Path, assay: Run) -> None:
    data = pairs_file(tmp_path / "train.jsonl", 4, 1)
    shared = ("--data", data, *FAST, "-w", workspace.root, "--seeds", "2")
    for method in (("generative-sft",), ("principle", "--holdout-prompts", "0", "--holdout-principles", "0")):
        code, _, err = assay("train", *method, *shared)
        assert code == 2
        assert "trainings are compared on held-out data: --eval-data" in err
    assert list_runs(workspace) == []


@pytest.mark.slow
def test_what_runs_out_of_memory_costs_the_others_nothing_and_losses_of_two_kinds_are_not_compared(
    workspace: Workspace, command: tuple[str | Path, ...], assay: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranked lists have no likelihood of pairs while they are trained, only their loss."""
    lists = tmp_path / "lists.jsonl"
    rows = [{"prompt": f"{n}", "responses": ["red!", "blue?", "sky."], "ranks": [1, 2, 3]} for n in range(8)]
    lists.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def exhausted(workspace: Workspace, plan: TrainingPlan, *arguments: Any, **options: Any) -> Any:
        if plan.config.seed == 0:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 99 GB")
        return train_model(workspace, plan, *arguments, **options)

    monkeypatch.setattr("assay_rm_training.runs.sweep.train_model", exhausted)
    data = ("--data", lists, "--eval-data", lists, "--final-data", lists, "--eval-every", "1")
    shared = ("train", "lists", *data, *FAST, "--name", "l", "-w", workspace.root, "--seeds", "2", "--json")
    code, out, _ = assay(*shared, "--sweep", "centring=0,1")
    assert code == 5
    runs = {run["model"]: run for run in json.loads(out.splitlines()[0])["runs"]}
    assert runs["l-centring0-s0"]["error"].startswith("out of memory")
    assert runs["l-centring1-s1"]["error"] is None
    assert "nll" not in runs["l-centring1-s1"]["figures"]
    assert "nll" in runs["l-centring1-s1"]["final_figures"]
    assert any("have a prompt that was trained on" in warning for warning in runs["l-centring1-s1"]["warnings"])


@pytest.mark.slow(reason="the test before has --final-data, too")
def test_figures_on_other_data_than_those_chosen_by(
    command: tuple[str | Path, ...], assay: Run, tmp_path: Path
) -> None:
    final = ("--final-data", pairs_file(tmp_path / "final.jsonl", 36, 3), "--eval-every", "1", "--metric", "accuracy")
    code, out, err = assay(*command, *final, "--sweep", "epochs=1,2", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["rule"] == (
        "the highest mean accuracy over seeds on held.jsonl; figures on final.jsonl were not chosen by"
    )
    for run in result["runs"]:
        assert run["figures"].keys() == run["final_figures"].keys() == {"nll", "accuracy"}
        assert run["figures"]["nll"] != run["final_figures"]["nll"]
    assert result["ahead_of_second"]["low"] is None, "one seed"
