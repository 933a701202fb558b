"""From rollouts to people and back: doubtful pairs of a policy run are voted on, and the next reward model shows it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.cli.main import main
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import load_prompts
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.run import Plan, train_policy


class Short:
    """The held-out reward of this test: shorter responses are better."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        part = torch.tensor([-float(len(text)) for text in responses], dtype=torch.float64)
        return Rewards({"short": part}, [() for _ in items], [{} for _ in items])


@pytest.fixture
def policy_run(workspace: Workspace) -> str:
    recipe = load_recipe("dr_grpo", ["seed=3", "steps=3", "optimisation.lr=1e-3", "report_kl=false"])
    sampling = replace(recipe.sampling, prompts_per_step=4, group_size=6, max_new_tokens=12)
    recipe = replace(recipe, sampling=sampling)
    plan = Plan(
        recipe=recipe,
        policy="tiny",
        prompts=("constrained:16",),
        name="watched",
        rewards=("verifier",),
        watch=("short",),
        watch_share=1.0,
    )
    prompts = load_prompts("constrained:16", seed=3)
    made = train_policy(workspace, plan, prompts, [VerifierReward()], watched=[Short()])
    assert (made.folder / "suspects.jsonl").read_text().strip(), "the two rewards disagree somewhere"
    return made.run_id


def test_rollouts_become_labels_and_labels_a_model(
    workspace: Workspace, policy_run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def assay(*arguments: str, keys: str = "", code: int = 0) -> Any:
        monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "-w", str(workspace.root), "--json"])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed.err
        return json.loads(printed.out) if code == 0 else printed.err

    queued = assay("queue", "from-rollouts", policy_run, "--name", "doubts", "--gold-checks", "0")
    count = queued["suspects"]
    assert count == queued["new"] == queued["items"] >= 2
    assert assay("queue", "from-rollouts", policy_run, "--name", "doubts", "--gold-checks", "0")["new"] == 0
    assert assay("annotate", "doubts", "--as", "ann", keys="a" * count)["finished"]
    assert assay("queue", "effect", "doubts")["decisions"] == []
    assert assay("queue", "resolve", "doubts")["gold"] == count
    before = assay("queue", "effect", "doubts")
    assert len(before["decisions"]) == count
    assert all(e["label"] in ("A", "B") and e["preferred"] in ("A", "B") for e in before["decisions"])
    assert before["overturned"] == sum(e["label"] != e["preferred"] for e in before["decisions"])
    assert before["models"] == []
    assay("data", "snapshot", "corrected", "--pool", "gold")
    assay("train", "bt", "--data", "corrected", "--base", "tiny", "--name", "next", "--epochs", "1")
    after = assay("queue", "effect", "doubts")
    assert after["models"] == ["next"]
    assert all(e["snapshots"] == ["corrected"] and e["models"] == ["next"] for e in after["decisions"])


def test_rewards_of_several_runs_that_disagree_about_a_pair_are_not_one_of_them(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs found the same pairs; their rewards order the first one differently and the second one alike."""

    def assay(*arguments: str, keys: str = "") -> Any:
        monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "-w", str(workspace.root)])
        assert ended.value.code == 0, capsys.readouterr().err
        return capsys.readouterr().out

    def found(run: str, *pairs: tuple[str, str, str]) -> None:
        """The pairs as a run's watch writes them: what the reward trained on prefers first."""
        row = {"step": 1, "uid": "1.0", "doubt": 1.0, "rewards": [2.0, 1.0], "held_out": [1.0, 2.0]}
        lines = [
            json.dumps({**row, "prompt": [{"role": "user", "content": ask}], "responses": [better, worse]})
            for ask, better, worse in pairs
        ]
        (workspace.runs / run).mkdir(parents=True)
        (workspace.runs / run / "suspects.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        assay("queue", "from-rollouts", run, "--name", "doubts", "--gold-checks", "0")

    found("run-one", ("q", "yes", "no"), ("p", "short", "long"))
    found("run-two", ("q", "no", "yes"), ("p", "short", "long"))
    assay("annotate", "doubts", "--as", "ann", keys="aa")
    assay("queue", "resolve", "doubts")
    printed = json.loads(assay("queue", "effect", "doubts", "--json"))
    told = sorted(
        (e["contradictory"], e["preferred"] in ("A", "B"), e["overturned"] is None) for e in printed["decisions"]
    )
    assert told == [(False, True, False), (True, False, True)]
    assert printed["contradictory"] == 1
    text = assay("queue", "effect", "doubts")
    assert text.count("rewards disagree") == 1
    assert "1 about which rewards of several runs disagree" in text


def test_runs_without_suspects_are_refused_in_plain_words(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["queue", "from-rollouts", "run-nowhere", "-w", str(workspace.root)])
    assert ended.value.code == 3
    assert "no run 'run-nowhere'" in capsys.readouterr().err
    (workspace.runs / "run-plain").mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        main(["queue", "from-rollouts", "run-plain", "-w", str(workspace.root)])
    assert ended.value.code == 2
    assert "--watch" in capsys.readouterr().err
