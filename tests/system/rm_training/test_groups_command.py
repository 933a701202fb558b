"""Groups of annotators as a user gets them: found in votes, served as members of one model, a policy's max-min."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.domain import Message
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.compositions.maxmin import MaxMin
from assay_policy_training.rollouts.reward_uri import parse_reward
from assay_policy_training.rollouts.rewards import PartsReward, composed
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer

WORDS = ["red", "blue", "green", "tree", "stone", "river", "sky", "apple"]


def write_votes(path: Path, annotators: int = 12, votes: int = 14) -> Path:
    """Two annotators in three want `!`, one in three wants `?`."""
    rng = random.Random(0)
    with path.open("w") as stream:
        for number in range(annotators * votes):
            text = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
            sides = [f"{text}!", f"{text}?"]
            if number % annotators % 3 == 2:
                sides.reverse()
            prompt = [{"role": "user", "content": f"Number {number // annotators}"}]
            row = {"prompt": prompt, "chosen": sides[0], "rejected": sides[1], "annotator": f"w{number % annotators}"}
            stream.write(json.dumps(row) + "\n")
    return path


def test_groups_are_members_of_one_model_and_of_the_max_min(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_votes(tmp_path / "votes.jsonl")
    place = ["--base", "tiny", "--device", "cpu", "-w", str(workspace.root), "--json"]
    with pytest.raises(SystemExit) as stop:
        main(["train", "groups", "--data", str(data), "--name", "crowd", "--restarts", "3", *place])
    assert not stop.value.code
    trained = json.loads(capsys.readouterr().out)
    assert trained["shares"] == pytest.approx([2 / 3, 1 / 3], abs=0.02)
    assert trained["held_out"]["nll"] < trained["held_out"]["single_nll"]
    lines = (workspace.runs / trained["run_id"] / "annotators.jsonl").read_text().splitlines()
    belongs = {row["annotator"]: row["groups"] for row in map(json.loads, lines)}
    assert {name for name, groups in belongs.items() if groups[1] > 0.5} == {"w2", "w5", "w8", "w11"}

    scorer = load_scorer(ModelConfig(trained["path"], device="cpu"), workspace.root)
    assert parse_reward("parts:http://127.0.0.1:8700#crowd").form == "parts"
    items = [PromptItem((Message("user", f"Number {number}"),)) for number in (1, 2)]
    rewards = PartsReward(scorer).score(items, ["stone tree!", "stone tree?"])
    majority, minority = rewards.parts["member-0"], rewards.parts["member-1"]
    assert majority[0] > majority[1]
    assert minority[1] > minority[0]
    [first, second] = (dict(scores)["crowd"] for scores in rewards.scores)
    assert first.reward == pytest.approx(min(majority[0], minority[0]))  # --combine min is the default
    assert second.uncertainty is not None
    assert composed(MaxMin({"member-0": 2.0, "member-1": 1.0}), rewards) == pytest.approx((2 * majority + minority) / 3)
