"""`assay rl --seeds` and `--sweep`: what is compared, that nothing is trained twice, and what is refused before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run
from forked_command import ForkedCommand
from safetensors.numpy import load_file

from assay.runs.catalogue import list_runs
from assay.statistics.seeds import seed_interval
from assay.workspace import Workspace
from assay_policy_training.training.checkpoint import checkpoints

SMALL = ("--policy", "tiny", "--steps", "2", "--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4")


@pytest.fixture
def command(workspace: Workspace, tmp_path: Path) -> tuple[str | Path, ...]:
    reward = tmp_path / "letters.py"
    reward.write_text("def letters(response):\n    return float(sum(c in 'aeiou' for c in response))\n")
    held_out = ("--evaluate", "3", "--eval-prompts", "dev=constrained:3", "--eval-prompts", "test=constrained:8")
    return ("rl", "--reward", f"{reward}:letters", *SMALL, *held_out, "--name", "g", "-w", workspace.root)


@pytest.mark.slow
def test_policies_of_a_sweep_are_ordinary_runs_compared_on_the_same_held_out_prompts(
    workspace: Workspace, command: tuple[str | Path, ...], assay: Run
) -> None:
    code, out, err = assay(*command, "--seeds", "2", "--sweep", "kl.coefficient=0.01,0.1", "--json")
    assert code == 0, err
    result = json.loads(out)
    names = [run["model"] for run in result["runs"]]
    assert names == [f"g-kl.coefficient{value}-s{seed}" for value in ("0.01", "0.1") for seed in (0, 1)]
    rewards = {run["model"]: run["figures"]["reward_mean"] for run in result["runs"]}
    for one in result["settings"]:
        value, mean = one["settings"]["kl.coefficient"], one["figures"]["reward_mean"]
        values = [rewards[f"g-kl.coefficient{value}-s{seed}"] for seed in (0, 1)]
        interval = seed_interval(values)
        assert mean["mean"] == pytest.approx(sum(values) / 2)
        assert (mean["low"], mean["high"]) == pytest.approx((interval.low, interval.high) if interval else (None, None))
    best = max(result["settings"], key=lambda one: one["figures"]["reward_mean"]["mean"])
    assert result["best"] == best["settings"]
    assert result["rule"] == "the highest mean reward_mean over seeds on dev; figures on test were not chosen by"
    assert all(run["final_figures"].keys() == run["figures"].keys() for run in result["runs"])
    assert all(run["final_figures"] != run["figures"] for run in result["runs"])  # generated sets share no prompt

    runs = list_runs(workspace, group="g")
    assert {(run.kind, run.status) for run in runs} == {("rl", "done")}
    records = [json.loads((workspace.runs / run.id / "plan.json").read_text())["recipe"] for run in runs]
    assert {(each["kl"]["coefficient"], each["seed"]) for each in records} == {
        (k, s) for k in (0.01, 0.1) for s in (0, 1)
    }

    code, out, err = assay(*command, "--seeds", "3", "--sweep", "kl.coefficient=0.1")
    assert code == 0, err
    assert "training 1 of 1: kl.coefficient 0.1, seed 2 (2 of 3 done before)" in err
    assert "3/3" in out
    assert "…" not in out  # no figure is cut, however narrow the terminal
    code, _, err = assay(*command, "--seeds", "3", "--sweep", "kl.coefficient=0.1", "--steps", "3")
    assert code == 2
    assert "g-kl.coefficient0.1-s0 was trained with other settings (recipe.steps; run-" in err
    again = (*command, "--seeds", "2", "--sweep", "kl.coefficient=0.1")
    code, _, err = assay(*again, "--seed", "1")  # whose held-out prompts are others
    assert (code, "g-kl.coefficient0.1-s1 was trained with other settings (data_content; run-" in err) == (2, True)
    reward = Path(str(command[2]).rpartition(":")[0])
    reward.write_text(reward.read_text().replace("aeiou", "aeiouy"))
    code, _, err = assay(*again)
    assert (code, "(data_content; run-" in err) == (2, True)


@pytest.mark.slow
def test_a_killed_sweep_of_policies_goes_on_and_trains_nothing_twice(
    workspace: Workspace, command: tuple[str | Path, ...], assay: Run
) -> None:
    seeds = (*command, "--seeds", "2", "--set", "checkpoint_every=1", "--steps", "6")
    process = ForkedCommand(*seeds)
    try:
        process.until(lambda: any(checkpoints(run) for run in sorted(workspace.runs.glob("run-*"))[1:]))
    finally:
        process.kill()
    code, out, err = assay(*seeds, "--json")
    assert code == 0, err
    assert "training 1 of 1: seed 1 (1 of 2 done before)" in err
    assert [(run["model"], run["trained"]) for run in json.loads(out)["runs"]] == [("g-s0", False), ("g-s1", True)]
    [resumed] = [run for run in list_runs(workspace, group="g") if run.models == ("g-s1",)]
    code, _, err = assay(*seeds[:-6], "--name", "alone", "--seed", "1", "--steps", "6")
    assert code == 0, err
    one, other = (load_file(workspace.models / name / "model.safetensors") for name in ("g-s1", "alone"))
    assert all((one[name] == other[name]).all() for name in other)
    with workspace.store.unit() as db:
        row = db.execute("SELECT (metrics ->> 'resumed_at')::int FROM runs WHERE run_id = ?", [resumed.id]).fetchone()
    assert row is not None
    assert row[0] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", "0"), "field '--seeds': at least 1, not 0"),
        (("--sweep", "learning-rate=1"), "'learning-rate' is no option that can be swept"),
        (("--sweep", "reward=a,b"), "is no option that can be swept"),
        (("--sweep", "kl.coefficent=0.1"), "coefficent"),
        (("--sweep", "lr=1e-4,-1"), "must be at least 0, not -1"),
        (("--seeds", "2", "--evaluate", "0", "--eval-prompts", "x"), "--evaluate N"),
        (("--seeds", "2", "--eval-prompts", "more=constrained:3"), "more has no prompt that the sets before it lack"),
        (("--seeds", "2", "--resume", "run-x"), "the same command goes on with what is missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_before_training(
    options: tuple[str, ...], message: str, workspace: Workspace, command: tuple[Any, ...], assay: Run
) -> None:
    code, _, err = assay(*command, *options)
    assert code == 2
    assert message in err.splitlines()[-1]
    assert list_runs(workspace) == []
