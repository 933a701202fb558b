"""Which checkpoints of a run stay, which weights the policy has in the end, and evaluation while it trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import StopRule
from assay_policy_training.plugins.watch.stop_rules import NoProgress, OutOfBounds
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.checkpoint import Checkpoint, checkpoints, read_checkpoint, save_checkpoint, step_of
from assay_policy_training.training.checkpoint_choice import CheckpointChoice
from assay_policy_training.training.config import PolicyRunConfig
from assay_policy_training.training.loop import PolicyLoop
from assay_policy_training.training.run import Plan, TrainedPolicy, train_policy
from assay_serving.verifiers import AllLowercase

ITEMS = [PromptItem((Message("user", f"say {word}"),), (AllLowercase(),)) for word in ("hi", "no", "yes")]


def test_the_best_is_the_first_highest_value_and_the_lowest_with_a_minus() -> None:
    rows = [{"step": step, "x": value} for step, value in enumerate((0.2, 0.5, 0.5, float("nan"), 0.1), 1)]
    up, down = CheckpointChoice(best_by="x"), CheckpointChoice(best_by="-x")
    assert [up.note(row, ()) for row in rows] == [True, True, False, False, False]
    assert [down.note(row, ()) for row in rows] == [True, False, False, False, True]
    assert (up.best, down.best) == ((2, 0.5), (5, -0.1))
    assert up.note({"step": 6}, ()) is False


def test_newest_best_and_last_good_are_kept() -> None:
    choice = CheckpointChoice(newest=2, best_by="x")
    rules: list[StopRule] = [OutOfBounds("kl", above=1.0), NoProgress("x")]
    for step, (x, kl) in enumerate([(0.9, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 2.0), (0.4, 3.0)], 1):
        choice.note({"step": step, "x": x, "kl": kl}, rules)
    assert choice.good == {0: 3}
    assert choice.steps_to_keep([1, 2, 3, 4, 5], 6) == {1, 3, 5}
    single = CheckpointChoice()
    single.note({"step": 3, "kl": 0.1}, rules)
    assert single.steps_to_keep([1, 2], 3) == {3}, "the coming one is good itself"
    assert choice.final([1, 3, 5], 0) == 3
    assert choice.final([5], 0) is None, "none of a good step is left"
    assert choice.final([1, 3, 5], 1) is None, "no bound was broken"
    assert replace(choice, keep="best").final([1, 3], None) is None, "it has seen no step"
    choice.keep = "best"
    assert choice.final([1, 3, 5], None) == 1
    assert choice.final([3, 5], None) is None


def test_a_held_out_reward_that_falls_is_good_until_its_best_window() -> None:
    choice = CheckpointChoice()
    rule = OutOfBounds("overoptimised", above=0.5, patience=1)
    for step in range(1, 9):
        choice.note({"step": step, "overoptimised": float(step > 6), "overoptimised_good_step": min(step, 4)}, [rule])
    assert choice.final([2, 4, 6], 0) == 4


def test_files_of_other_steps_are_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, Checkpoint(step, {"x": torch.tensor(step)}, {}), keep=(1,))
    assert [step_of(path) for path in checkpoints(tmp_path)] == [1, 3]
    assert int(read_checkpoint(checkpoints(tmp_path)[0]).tensors["x"]) == 1


def trainer(folder: Path, *overrides: str, choice: CheckpointChoice | None = None) -> PolicyLoop:
    recipe = load_recipe(
        "dr_grpo",
        ["steps=4", "optimisation.lr=1e-2", "sampling.max_new_tokens=4", "sampling.group_size=2", *overrides],
    )
    sampling = replace(recipe.sampling, prompts_per_step=2, max_prompt_tokens=64)
    recipe = replace(recipe, sampling=sampling, report_kl=False, checkpoint_every=1)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    source = recipe.source.open(ITEMS, seed=0, policy=policy)
    folder.mkdir(exist_ok=True)
    return PolicyLoop(recipe, policy, source, [VerifierReward()], folder, choice=choice)


def weights(of: PolicyLoop) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in of.parameters.items()}


class Breaks(OutOfBounds, section="stop"):
    """Out of bounds after step 2, whatever the metrics."""

    def is_out(self, row: Any) -> bool | None:
        return bool(row["step"] > 2)


def test_a_broken_bound_returns_to_the_last_good_weights(tmp_path: Path) -> None:
    two = trainer(tmp_path / "two", "steps=2")
    two.train()
    stopped = trainer(tmp_path / "stopped")
    stopped.recipe = replace(stopped.recipe, stop=(Breaks("step", above=2.0, patience=2),))
    rows = stopped.train()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert stopped.stopped
    assert stopped.returned_to == 2
    assert stopped.updates == two.updates
    expected = weights(two)
    assert all(torch.equal(expected[name], value) for name, value in weights(stopped).items())
    assert [step_of(path) for path in checkpoints(stopped.folder)] == [2], "a resumed run begins there"
    assert len(stopped.metrics_log.rows()) == 4, "the steps behind it stay in the log"
    assert step_of(stopped.save_checkpoint()) == 2
    assert len(checkpoints(stopped.folder)) == 1


def test_several_of_the_newest_and_the_best_weights(tmp_path: Path) -> None:
    made = trainer(tmp_path / "a", choice=CheckpointChoice(newest=2, best_by="-step", keep="best"))
    made.train()
    assert [step_of(path) for path in checkpoints(made.folder)] == [1, 3, 4]
    assert made.returned_to == 1
    one = trainer(tmp_path / "b", "steps=1")
    one.train()
    expected = weights(one)
    assert all(torch.equal(expected[name], value) for name, value in weights(made).items())
    again = trainer(tmp_path / "a", choice=CheckpointChoice(newest=2, best_by="-step", keep="best"))
    assert again.resume() == 4
    assert again.choice.best == (1, -1.0), "known from the log"


def trained(workspace: Workspace, name: str, **settings: Any) -> TrainedPolicy:
    recipe = load_recipe("dr_grpo", ["steps=4", "optimisation.lr=1e-2", "sampling.max_new_tokens=4"])
    recipe = replace(recipe, sampling=replace(recipe.sampling, prompts_per_step=2, group_size=2, max_prompt_tokens=64))
    plan = Plan(
        **{"recipe": recipe, "policy": "tiny", "name": name, "rewards": ("given",), "evaluate": 3, **settings},
        evaluation_samples=2,
    )
    return train_policy(workspace, plan, ITEMS, [VerifierReward()], held_out=ITEMS)


@pytest.mark.slow
def test_evaluation_every_n_steps_changes_nothing_else(workspace: Workspace) -> None:
    plain, often = trained(workspace, "plain"), trained(workspace, "often", eval_every=2)
    timed = ("seconds", "tokens_per_second", "eval_")
    steps, evaluated = (
        [{name: value for name, value in row.items() if not name.startswith(timed)} for row in run.steps]
        for run in (plain, often)
    )
    assert steps == evaluated
    assert [row["step"] for row in often.steps if "eval_reward_mean" in row] == [2, 4]
    assert often.after is not None
    assert often.steps[-1]["eval_reward_mean"] == pytest.approx(often.after.reward_mean), "of the same weights"
    assert often.steps[-1]["eval_pass_rate"] == often.after.verifier.share if often.after.verifier else False
    assert often.metrics["best"]["eval_reward_mean"] == max(row["eval_reward_mean"] for row in often.steps[1::2])


def test_the_saved_policy_is_the_best_evaluation(workspace: Workspace) -> None:
    run = trained(workspace, "best", eval_every=1, keep="best", best_by="eval_entropy")
    entropies = {row["step"]: row["eval_entropy"] for row in run.steps}
    best = max(entropies, key=lambda step: entropies[step])
    assert run.metrics["saved_step"] == best
    assert run.after is not None
    assert run.after.entropy == pytest.approx(entropies[best])


def test_settings_that_cannot_act_are_refused() -> None:
    with pytest.raises(BadInputError, match="--evaluate N"):
        PolicyRunConfig(eval_every=2)
    with pytest.raises(BadInputError, match="--eval-every N"):
        PolicyRunConfig(keep="best")
    with pytest.raises(BadInputError, match="keep_checkpoints"):
        PolicyRunConfig(keep_checkpoints=0)
