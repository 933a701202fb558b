"""An online loop on `tiny`: labels change the reward that a policy is trained on, and kill -9 changes nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import online_labels
import pytest
import torch

from assay import ids
from assay.domain import prompt_of
from assay.errors import AssayError, BadInputError
from assay.models.spec import RewardModelSpec
from assay.runs.callbacks import Callback, StepCallback
from assay.runs.json_log import read_metrics
from assay.runs.lineage import lineage
from assay.workspace import Workspace
from assay_pipelines.online.config import LoopConfig, loop_of
from assay_pipelines.online.journal import Control, Journal
from assay_pipelines.online.refit import HeadsRefit
from assay_pipelines.online.reward_host import ServedReward
from assay_pipelines.online.run import run_loop
from assay_policy_training.core.policy import Policy
from assay_policy_training.training.checkpoint import checkpoint_folder, read_checkpoint
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.engines.head_ensemble import HeadEnsembleSpec

JUDGE = "online_labels:LongerIsBetter"
SMALL = {"sampling.prompts_per_step": 4, "sampling.group_size": 4, "sampling.max_new_tokens": 8, "checkpoint_every": 2}


def loop(**changes: Any) -> LoopConfig:
    plan: dict[str, Any] = {
        "name": "looped",
        "policy": "tiny",
        "set": {**SMALL, "steps": 6, "optimisation.lr": 1e-3},
        "training": {"prompts": ["constrained:24"], "device": "cpu"},
        "reward": {"labels": 12, "members": 3, "l2": 0.1},
        "labels": {"every": 2, "count": 4, "source": {"kind": "judge", "judge": {"kind": JUDGE}}},
    }
    for name, value in changes.items():
        plan[name] = {**plan.get(name, {}), **value} if isinstance(value, dict) else value
    return loop_of(plan)


def rows(folder: Path, name: str, *without: str) -> list[dict[str, Any]]:
    listed = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key not in without} for row in listed]


def life(folder: Path, kill: Callable[[pytest.MonkeyPatch], None] | None) -> int:
    """One process of the loop, killed where `kill` says; its wait status."""
    if (pid := os.fork()) == 0:
        patch = pytest.MonkeyPatch()
        if kill is not None:
            kill(patch)
        code = 1
        try:
            run_loop(Workspace.of(folder), loop())
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def killed_at(owner: Any, name: str, call: int, *, after: bool = False) -> Callable[[pytest.MonkeyPatch], None]:
    """Kill the process at the start of a call of a method, or at its end."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        made, calls = getattr(owner, name), [0]

        def killing(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] == call and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = made(*arguments, **named)
            if calls[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        patch.setattr(owner, name, killing)

    return patched


@pytest.mark.slow
def test_a_loop_that_is_killed_again_and_again_is_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(online_labels.NOTES, str(tmp_path / "whole"))
    whole = run_loop(Workspace.of(tmp_path / "a"), loop())
    monkeypatch.setenv(online_labels.NOTES, str(tmp_path / "parts"))
    kills = [
        killed_at(online_labels.LongerIsBetter, "judge", 1),  # of the first labels: the loop has no run yet
        killed_at(Journal, "keep_reply", 1),  # answered, and in no file of the run; no checkpoint yet
        killed_at(Journal, "add_labels", 2),  # in the replies only
        killed_at(HeadsRefit, "save", 1, after=True),  # a model that nothing uses
        killed_at(PolicyLoop, "_step", 5),  # between two checkpoints
        killed_at(Journal, "event", 2, after=True),  # step 6: swapped, and no step recorded
        killed_at(Policy, "save", 1, after=True),  # all steps done, the policy saved
    ]
    for kill in kills:
        assert os.WTERMSIG(life(tmp_path / "b", kill)) == signal.SIGKILL
    assert life(tmp_path / "b", None) == 0
    workspace = Workspace.of(tmp_path / "b")
    resumed = max(workspace.runs.glob("*/loop.json"), key=lambda path: path.stat().st_mtime).parent
    times = ("asked_at", "answered_at", "at", "seconds")
    for name in ("labels.jsonl", "events.jsonl"):
        assert rows(resumed, name, *times) == rows(whole.folder, name, *times)
    stopwatches = {name for row in read_metrics(resumed) for name in row if name.startswith("seconds")}
    timed = (*stopwatches, "tokens_per_second")
    assert rows(resumed, "metrics.jsonl", *timed) == rows(whole.folder, "metrics.jsonl", *timed)
    for file in whole.policy.glob("*.safetensors"):
        assert (workspace.models / "looped" / file.name).read_bytes() == file.read_bytes()
    asked = (tmp_path / "parts").read_text(encoding="utf-8").splitlines()
    assert sorted(asked) == sorted((tmp_path / "whole").read_text(encoding="utf-8").splitlines())
    assert len(set(asked)) == len(asked)


ALARM = {"metrics": [{"kind": "online_labels:AlarmAt", "step": 2}], "steps": 3, "checkpoint_every": 1}


def kinds(folder: Path) -> list[tuple[int, str]]:
    return [(row["step"], row["kind"]) for row in rows(folder, "events.jsonl")]


@pytest.mark.slow
def test_after_an_alarm_the_policy_takes_up_the_last_good_weights_and_labels_are_bought_there(
    workspace: Workspace,
) -> None:
    plan = {"set": ALARM, "labels": {"every": 100}, "training": {"keep_checkpoints": 5}}
    made = run_loop(workspace, loop(**plan, alarm={"action": "return", "labels": 2}))
    assert kinds(made.folder) == [(2, "alarm"), (2, "returned"), (3, "refit"), (3, "swap")]
    assert [row["labels_spent"] for row in made.steps] == [12, 12, 14]
    weights = {step: read_checkpoint(checkpoint_folder(made.folder, step)).tensors["parameters"] for step in (1, 2, 3)}
    assert all(torch.equal(weights[1][name], value) for name, value in weights[2].items())
    again = r"the loop looped has ended \(run-.* and its policy is the model 'looped'; .*: assay models remove looped"
    with pytest.raises(BadInputError, match=again):
        run_loop(workspace, loop(**plan, alarm={"action": "return", "labels": 2}))
    assert not all(torch.equal(weights[2][name], value) for name, value in weights[3].items())


@pytest.mark.slow(reason="another case of the test before")
def test_where_no_checkpoint_is_as_early_nothing_is_taken_up(workspace: Workspace) -> None:
    settings = {**ALARM, "checkpoint_every": 5}
    made = run_loop(workspace, loop(set=settings, labels={"every": 100}, alarm={"action": "return", "labels": 2}))
    assert kinds(made.folder)[0] == (2, "alarm")
    assert "returned" not in {kind for _, kind in kinds(made.folder)}
    assert made.steps[-1]["labels_spent"] > 12


@pytest.mark.parametrize(
    "action",
    ["stop", *(pytest.param(other, marks=pytest.mark.slow) for other in ("label", "penalty", "ignore"))],
)
def test_other_actions_on_an_alarm(workspace: Workspace, action: str) -> None:
    plan = {"set": ALARM, "labels": {"every": 100}}
    made = run_loop(workspace, loop(**plan, alarm={"action": action, "labels": 3, "kl": 0.1, "length": 0.5}))
    events = kinds(made.folder)
    assert events[0] == (2, "alarm")
    assert len(made.steps) == (2 if action == "stop" else 3)
    assert made.steps[-1]["labels_spent"] == (15 if action == "label" else 12)
    assert ((2, "penalty") in events) == (action == "penalty")
    assert action != "ignore" or events == [(2, "alarm")]
    if action == "stop":
        assert (made.metrics["stopped_early"], made.metrics["saved_step"]) == ("alarm at step 2", 1)


@pytest.mark.slow
def test_orders_from_outside_and_a_limit(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    made = run_loop(
        workspace, loop(alarm={"metric": "overoptimized"}), on_start=lambda folder: Control("stop").write(folder)
    )
    assert made.metrics["stopped_early"] == "stopped by an order from outside"
    assert len(made.steps) == 1
    assert "an alarm is awaited from 'overoptimized', which step 1 does not have" in caplog.text

    paused: list[Path] = []

    def go_on(folder: Path) -> None:
        while not (folder / "events.jsonl").is_file() or (1, "paused") not in kinds(folder):
            time.sleep(0.02)
        Control(labels=13).write(folder)

    def pause(folder: Path) -> None:
        paused.append(folder)
        Control("pause").write(folder)
        threading.Thread(target=go_on, args=(folder,)).start()

    more = loop(name="limited", set={"steps": 4}, budget={"labels": 40})

    def slip(row: Mapping[str, Any]) -> None:
        (paused[0] / "control.json").write_text('{"state": "sto', encoding="utf-8")

    limited = run_loop(workspace, more, on_start=pause, callbacks=[StepCallback(slip)])
    assert kinds(limited.folder)[:3] == [(1, "paused"), (1, "continued"), (2, "order_refused")]
    assert [row["labels_spent"] for row in limited.steps] == [12, 13, 13, 13]
    assert kinds(limited.folder)[-1] == (4, "budget")


@pytest.mark.slow
def test_a_loop_begins_with_pairs_or_a_model_and_outlasts_a_source_that_is_down(
    workspace: Workspace, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(
        "".join(json.dumps({"prompt": f"{n}?", "chosen": f"{n} it is", "rejected": "no"}) + "\n" for n in range(4))
    )
    source = {"kind": "online_labels:Source"}
    plan: dict[str, Any] = {"set": {"steps": 2}, "labels": {"every": 1, "count": 1, "held_out": 0.0}}
    plan["labels"]["source"] = {**source, "down": 1}

    def begun(name: str, **start: Any) -> tuple[list[tuple[int, str]], list[dict[str, Any]]]:
        made = run_loop(workspace, loop(**plan, name=name, reward={"labels": 0, **start}))
        return kinds(made.folder), rows(made.folder, "events.jsonl")

    events, detail = begun("with-pairs", pairs=str(pairs))
    assert events == [(1, "source_down"), (2, "refit"), (2, "swap")]
    first, last = (workspace.models / detail[-1][name] for name in ("before", "model"))
    assert [HeadEnsembleSpec.read(model).pairs for model in (first, last)] == [4, 5]
    assert begun("with-snapshot", start=last.name)[0] == events
    # one label of one prompt is no reward model: the beginning stays
    events, detail = begun("with-model", start=first.name)
    assert events == [(1, "source_down"), (2, "kept")]
    assert "too few" in detail[-1]["why"]


def test_a_vote_can_be_followed_to_the_reward_of_a_later_rollout(workspace: Workspace) -> None:
    made = run_loop(workspace, loop(set={"steps": 4}, labels={"every": 1, "held_out": 0.0}))
    swap = next(row for row in rows(made.folder, "events.jsonl") if row["kind"] == "swap")
    labels = [row for row in rows(made.folder, "labels.jsonl") if row["step"] == swap["step"]]
    vote = next(row["judgments"][0] for row in labels if row["label"] in ("A", "B"))
    later = [row for row in rows(made.folder, "rollouts.jsonl") if row["step"] == swap["step"] + 1]
    assert {score["version"] for row in later for score in row["scores"].values()} == {swap["version"]}
    scored = {ids.response_id(ids.prompt_id(prompt_of(row["prompt"])), row["response"]) for row in later}
    walked = {node.id: node.kind for node in lineage(workspace, vote, "down", depth=6, width=500).walk()}
    assert scored <= walked.keys()
    assert {"judgment", "decision", "snapshot", "run", "artifact", "response"} <= set(walked.values())


@pytest.mark.slow
def test_the_reward_may_be_served_by_a_child_process_that_is_started_again_when_it_ends(workspace: Workspace) -> None:
    served: list[ServedReward] = []

    class Killer(Callback):
        def on_step(self, row: Mapping[str, Any]) -> None:
            (host,) = served
            if row["step"] == 3:  # after the swap of step 2
                os.killpg(host._process.pid, signal.SIGKILL)

    made_start = ServedReward._start

    def noted(self: ServedReward, port: int) -> str:
        served[:] = [self]
        return made_start(self, port)

    here = run_loop(workspace, loop(name="here"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServedReward, "_start", noted)
        made = run_loop(workspace, loop(reward={"host": "serve"}), callbacks=[Killer()])
    assert served[0].restarts == 1
    assert all(row["rewards_missing"] == 0 for row in made.steps)
    assert made.steps[-1]["swaps"] == here.steps[-1]["swaps"] >= 2
    assert [row["reward_mean"] for row in made.steps] == pytest.approx(
        [row["reward_mean"] for row in here.steps], abs=1e-4
    )
    assert served[0]._process.poll() is not None


@pytest.mark.slow(reason="another way of refitting")
def test_a_whole_reward_model_may_be_trained_again_from_the_one_before(workspace: Workspace) -> None:
    whole = {"refit": "train", "backbone": "tiny", "training": {"epochs": 1, "lr": 1e-4}}
    made = run_loop(workspace, loop(reward=whole, set={"steps": 3}, labels={"selector": {"kind": "margin"}}))
    swap = next(row for row in rows(made.folder, "events.jsonl") if row["kind"] == "swap")
    scored = [row for row in rows(made.folder, "rollouts.jsonl") if row["step"] == swap["step"] + 1]
    assert {score["version"] for row in scored for score in row["scores"].values()} == {swap["version"]}
    spec = RewardModelSpec.read(workspace.models / swap["model"])
    assert spec is not None
    assert Path(spec.base).name == swap["before"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": {"labels": 0}}, "begin with one of start, pairs and labels"),
        ({"budget": {"labels": 0}}, "the first model needs 12 labels"),
        ({"labels": {"selector": {"kind": "disagree"}}}, "no selector is named 'disagree'; did you mean disagreement"),
        ({"labels": {"source": {"kind": "peple"}}}, "no label_source is named 'peple'; did you mean people"),
        ({"labels": {"source": {"kind": "simulated", "acuracy": 1}}}, "did you mean accuracy"),
        ({"reward": {"labels": 0, "start": "nosuch"}}, "field 'reward.start': no reward model 'nosuch'"),
        ({"labels": {"other": "nosuch"}}, "field 'labels.other'"),
        ({"policy": "nosuch"}, "field 'policy': no model 'nosuch'"),
        ({"reward": {"labels": 0, "pairs": "nosuch"}}, "field 'reward.pairs': 'nosuch' is neither a snapshot"),
        ({"reward": {"labels": 4, "backbone": "./nosuch"}}, "field 'reward.backbone': no model './nosuch'"),
        ({"reward": {"refit": "train"}}, "disagreement needs members (an ensemble as the reward)"),
        ({"reward": {"refit": "train", "training": {"epoch": 1}}, "labels": {"selector": {"kind": "random"}}}, "epoch"),
        ({"name": "looped@"}, "is not a model name"),
        (
            {"alarm": {"action": "return"}, "set": {"checkpoint_every": 0, "checkpoint_minutes": 0}},
            "return needs checkpoints",
        ),
        ({"training": {"prompt": []}}, "no option of a policy's training"),
        ({"labels": {"source": {"kind": "reward", "model": "http://127.0.0.1:9"}}}, "127.0.0.1:9"),
    ],
)
def test_a_loop_that_cannot_run_says_why_in_one_line(
    workspace: Workspace, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssayError) as error:
        run_loop(workspace, loop(**changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    if "name" in changes or "alarm" in changes:
        assert not workspace.runs.is_dir() or not any(workspace.runs.iterdir()), "before anything is asked"
