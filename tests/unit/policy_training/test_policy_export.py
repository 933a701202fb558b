"""A checkpoint of a policy run as a stock model, while the run goes on and afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BadInputError, NotFoundError
from assay.models.contamination import BenchmarkUse, read_uses, write_uses
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.export import export_policy
from assay_policy_training.training.run import Plan, TrainedPolicy, train_policy
from assay_serving.verifiers import AllLowercase

ITEMS = [PromptItem((Message("user", f"say {word}"),), (AllLowercase(),)) for word in ("hi", "no")]


class ExportsMeanwhile(VerifierReward):
    """Writes the newest checkpoint of the workspace's only run at the third call: of step 2, in the third step."""

    def __init__(self, workspace: Workspace, target: Path) -> None:
        super().__init__()
        self.workspace, self.target, self.calls, self.step = workspace, target, 0, 0

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        self.calls += 1
        if self.calls == 3:
            [folder] = self.workspace.runs.iterdir()
            self.step = export_policy(self.workspace, folder.name, "newest", self.target)
        return super().score(items, responses)


def trained(workspace: Workspace, reward: VerifierReward, *overrides: str) -> TrainedPolicy:
    recipe = load_recipe("dr_grpo", ["steps=3", "optimisation.lr=1e-2", "sampling.max_new_tokens=4", *overrides])
    sampling = replace(recipe.sampling, prompts_per_step=2, group_size=2, max_prompt_tokens=64)
    recipe = replace(recipe, sampling=sampling, checkpoint_every=1)
    plan = Plan(recipe=recipe, policy="tiny", name="p", rewards=("given",), keep_checkpoints=2, best_by="-step")
    return train_policy(workspace, plan, ITEMS, [reward])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), ("lora.rank=2",)])
def test_the_exported_weights_are_the_checkpoints(
    workspace: Workspace, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    reward = ExportsMeanwhile(workspace, tmp_path / "meanwhile")
    run = trained(workspace, reward, *overrides)
    assert reward.step == 2
    assert export_policy(workspace, run.run_id, "newest", tmp_path / "last") == 3
    assert export_policy(workspace, run.run_id, "2", tmp_path / "second") == 2
    assert export_policy(workspace, run.run_id, "best", tmp_path / "best") == 1
    saved, last = weights(run.policy), weights(tmp_path / "last")
    assert all(torch.equal(saved[name], value) for name, value in last.items())
    meanwhile, second = weights(tmp_path / "meanwhile"), weights(tmp_path / "second")
    assert all(torch.equal(meanwhile[name], value) for name, value in second.items())
    assert any(not torch.equal(last[name], value) for name, value in second.items())


@pytest.mark.slow
def test_benchmarks_that_the_run_inherits_go_with_it(workspace: Workspace, tmp_path: Path) -> None:
    run = trained(workspace, VerifierReward())
    use = BenchmarkUse("bench", "0", "training", "overlaps", "rows.jsonl", "rm", 3)
    write_uses(run.folder, [use])
    export_policy(workspace, run.run_id, "newest", tmp_path / "out")
    assert read_uses(tmp_path / "out") == (use,)


def test_what_is_not_there_is_named(workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(workspace, VerifierReward()).run_id
    with pytest.raises(NotFoundError, match="no checkpoint '9'; it has those of steps 1, 2, 3"):
        export_policy(workspace, run, "9", tmp_path / "out")
    with pytest.raises(NotFoundError, match="not a policy training"):
        export_policy(workspace, "run-0", "newest", tmp_path / "out")
    with pytest.raises(BadInputError, match="already exists"):
        export_policy(workspace, run, "newest", tmp_path)
    arguments = ["export-policy", run, "--to", str(tmp_path / "out"), "--json", "-w", str(workspace.root)]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["step"] == 3
