"""A critic learns what it is shown; order, batches and restarts change nothing; rows without a reward do not count."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.loading import resolve_model
from assay.models.parallelism.strategy import SingleProcess
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Optimisation
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.critics.value_model import ValueCritic, ValueModel
from assay_policy_training.plugins.estimators.gae import Gae, ReturnsToGo
from assay_policy_training.plugins.filters.groups import EnoughValid
from assay_policy_training.plugins.objectives.ratio_clip import PpoClip
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.shaping.dense import KlInReward
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "a rather longer prompt than the others", "and you?")]
CATEGORICAL = ValueModel(lr=1e-2, head="hl_gauss", clip=None, bins=21, low=-1.0, high=2.0)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=128)


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> RolloutBatch:
    """12 rows of several lengths: rewards by prompt, so that the state foretells the return; one is missing."""
    drawn = TransformersSampler(policy, Sampling(max_new_tokens=16)).rollout(ITEMS, 4, seed=3, version=0)
    lengths = torch.tensor([16, 3, 9, 1, 12, 16, 5, 2, 12, 16, 8, 10])
    mask = (torch.arange(16) < lengths[:, None]) & drawn.mask
    reward = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64).repeat_interleave(4)
    reward[6] = torch.nan
    batch = drawn.with_(mask=mask, loss_mask=mask, reward=reward)
    return batch.with_(returns=ReturnsToGo()(batch)[1])


def opened(policy: Policy, plan: ValueModel, *, seed: int | None = None) -> ValueCritic:
    """`seed`: with a head drawn from it, so that values differ from token to token."""
    critic = plan.open(policy)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in critic.score.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return critic


def gradient(critic: ValueCritic, batch: RolloutBatch, rows: Tensor) -> Tensor:
    critic.optimiser.zero_grad(set_to_none=True)
    critic.accumulate(batch, rows)
    parts = [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in critic.parameters.values()]
    critic.optimiser.zero_grad(set_to_none=True)
    return torch.cat(parts).clone()


def wider(batch: RolloutBatch) -> RolloutBatch:
    """More padding on both sides."""

    def right(values: Tensor) -> Tensor:
        return torch.cat([values, torch.zeros(len(values), 7, dtype=values.dtype)], 1)

    def left(values: Tensor) -> Tensor:
        return torch.cat([torch.zeros(len(values), 3, dtype=values.dtype), values], 1)

    names = ("tokens", "mask", "loss_mask", "logp_mu", "token_version", "returns", "values")
    wide = {name: right(getattr(batch, name)) for name in names if getattr(batch, name) is not None}
    return batch.with_(**wide, train_input_ids=left(batch.train_input_ids), train_mask=left(batch.train_mask))


@pytest.mark.parametrize("plan", [ValueModel(), CATEGORICAL], ids=["scalar", "hl_gauss"])
def test_micro_batches_rows_and_padding_do_not_change_values_or_gradient(
    policy: Policy, rollouts: RolloutBatch, plan: ValueModel
) -> None:
    whole = opened(policy, replace(plan, micro_batch_rows=12), seed=1)
    split = opened(policy, replace(plan, micro_batch_rows=5), seed=1)
    batch = rollouts.select(rollouts.valid.nonzero().squeeze(1))
    batch = batch.with_(values=whole.values(batch) + 0.1 * batch.mask)
    rows = torch.arange(len(batch))
    assert batch.values is not None
    assert not batch.values[~batch.mask].any()
    assert float(batch.values[batch.mask].std()) > 1e-3
    torch.testing.assert_close(split.values(batch), whole.values(batch), atol=1e-5, rtol=1e-4)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(whole.values(batch.select(order)), whole.values(batch)[order], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole.values(wider(batch))[:, :16], whole.values(batch), atol=1e-5, rtol=1e-4)
    expected = gradient(whole, batch, rows)
    assert float(expected.abs().max()) > 1e-3
    for found in (
        gradient(split, batch, rows),
        gradient(whole, batch.select(order), rows),
        gradient(whole, wider(batch), rows),
    ):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_values_are_of_the_state_before_each_token(policy: Policy, rollouts: RolloutBatch) -> None:
    """A token changes the values after it, not its own."""
    critic = opened(policy, ValueModel(), seed=1)
    row = rollouts.select([0])
    changed = row.tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 200
    before, after = critic.values(row), critic.values(row.with_(tokens=changed))
    torch.testing.assert_close(after[:, :6], before[:, :6], atol=1e-6, rtol=1e-5)
    assert float((after[:, 6:] - before[:, 6:]).abs().max()) > 1e-4


def test_tokens_that_are_given_are_read_and_not_valued(policy: Policy, rollouts: RolloutBatch) -> None:
    critic = opened(policy, ValueModel(), seed=1)
    row = rollouts.select([0])
    mask = row.mask.clone()
    mask[0, :4] = False
    hinted = row.with_(mask=mask, loss_mask=mask, forced=row.mask & ~mask)
    values = critic.values(hinted)
    assert not values[0, :4].any()
    torch.testing.assert_close(values[0, 4:], critic.values(row)[0, 4:], atol=1e-6, rtol=1e-5)
    expected = hinted.with_(values=values, returns=torch.ones(values.shape))
    assert float(gradient(critic, expected, torch.arange(1)).abs().max()) > 0


def test_each_row_has_a_value_or_an_error_says_how_many_lack_one(policy: Policy, rollouts: RolloutBatch) -> None:
    """Rows without tokens are in a pass too; of two processes whose other one returns nothing, rows are missing."""
    critic = opened(policy, ValueModel(micro_batch_rows=3), seed=1)
    nothing = torch.zeros_like(rollouts.mask[:5])
    mask = torch.cat([nothing, rollouts.mask[5:]])
    values = critic.values(rollouts.with_(mask=mask, loss_mask=mask))
    assert not values[:5].any()
    torch.testing.assert_close(values[5:], critic.values(rollouts)[5:], atol=1e-5, rtol=1e-4)
    assert critic.values(rollouts.select([])).shape == (0, rollouts.mask.shape[1])

    class OneOfTwo(SingleProcess):
        rank, world = 0, 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "parallel", OneOfTwo())
        with pytest.raises(BackendError, match="values of 6 of 12 rows"):
            critic.values(rollouts)


def test_rows_without_a_reward_teach_nothing(policy: Policy, rollouts: RolloutBatch) -> None:
    plan = ValueModel(lr=1e-2, minibatches=1)
    with_missing, without = opened(policy, plan), opened(policy, plan)
    found = with_missing.update(rollouts, step=1, seed=0)
    assert found["value_rows"] == 11
    without.update(rollouts.select(rollouts.valid.nonzero().squeeze(1)), step=1, seed=0)
    for name, parameter in with_missing.parameters.items():
        assert torch.equal(parameter, without.parameters[name]), name
    nothing = rollouts.with_(reward=torch.full((12,), torch.nan, dtype=torch.float64))
    before = [p.clone() for p in without.parameters.values()]
    assert without.update(nothing, step=2, seed=0) == {}
    assert all(map(torch.equal, before, without.parameters.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        ValueModel(lr=3e-3, clip=None, minibatches=2),
        replace(CATEGORICAL, lr=3e-3, minibatches=2),
        ValueModel(lr=1e-2, clip=None, minibatches=4, lora=Lora(rank=8)),
    ],
    ids=["scalar", "hl_gauss", "lora"],
)
def test_a_critic_learns_what_the_prompt_foretells(policy: Policy, rollouts: RolloutBatch, plan: ValueModel) -> None:
    critic = plan.open(policy)
    seen: list[dict[str, float]] = []
    for step in range(1, 31):
        batch = rollouts.with_(values=critic.values(rollouts))
        seen.append(critic.update(batch, step=step, seed=step))
    assert seen[0]["explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert seen[-1]["explained_variance"] > 0.8
    assert seen[-1]["value_loss"] < 0.75 * seen[0]["value_loss"]
    if plan.lora.rank:
        assert (
            sum(p.numel() for p in critic.parameters.values()) < sum(p.numel() for p in policy.trainable().values()) / 2
        )


def test_value_clipping_slows_the_critic_down(policy: Policy, rollouts: RolloutBatch) -> None:
    """With several passes over a batch: a value may move by `clip` from what the rollouts were given."""
    plan = ValueModel(lr=1e-2, epochs=15, clip=None)
    batch = rollouts.with_(values=torch.zeros(rollouts.mask.shape))
    moved = {}
    for clip in (None, 0.05):
        critic = replace(plan, clip=clip).open(policy)
        found = critic.update(batch, step=1, seed=0)
        moved[clip] = float(critic.values(rollouts)[rollouts.mask].max())
        assert (found["value_clip_fraction"] > 0.1) == (clip is not None)
    assert moved[0.05] < moved[None]


class Lengths:
    """Each step's reward: the share of lower-case letters, from the text alone."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        shares = [sum(c.islower() for c in text) / max(1, len(text)) for text in responses]
        return Rewards({"lower": torch.tensor(shares, dtype=torch.float64)}, [()] * len(items), [{}] * len(items))


def ppo(**changes: Any) -> Recipe:
    settings: dict[str, Any] = {
        "name": "ppo",
        "estimator": Gae(),
        "objective": PpoClip(),
        "critic": ValueModel(lr=1e-3, warmup_steps=1, minibatches=2),
        "filters": (EnoughValid(minimum=1),),
        "sampling": Sampling(prompts_per_step=4, group_size=1, max_new_tokens=10, max_prompt_tokens=128),
        "optimisation": Optimisation(lr=1e-3, minibatches=2, micro_batch_rows=3),
        "steps": 4,
        "checkpoint_every": 1,
        "report_kl": False,
    }
    return Recipe(**(settings | changes))


def trainer(recipe: Recipe, folder: Path) -> PolicyLoop:
    folder.mkdir(exist_ok=True)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=recipe.needs_reference)
    return PolicyLoop(recipe, policy, ShuffledPrompts(ITEMS, seed=0), [Lengths()], folder)


@pytest.mark.slow
@pytest.mark.parametrize("critic", [ValueModel(lr=1e-3, warmup_steps=1, minibatches=2), CATEGORICAL])
def test_critic_and_policy_resume_bit_for_bit(tmp_path: Path, critic: ValueModel) -> None:
    recipe = ppo(critic=critic)
    whole = trainer(recipe, tmp_path / "whole")
    rows = whole.train()
    first = trainer(recipe, tmp_path / "halves")
    first.train(2)
    again = trainer(recipe, tmp_path / "halves")
    assert again.resume() == 2
    again.train()
    assert isinstance(whole.critic, ValueCritic)
    assert isinstance(again.critic, ValueCritic)
    assert whole.critic.updates == again.critic.updates > 0
    for mine, other in ((whole.parameters, again.parameters), (whole.critic.parameters, again.critic.parameters)):
        for name, value in mine.items():
            assert torch.equal(value, other[name]), f"{name} differs after a resume"
    assert all(bool(p.detach().any()) for p in whole.critic.score.parameters())
    assert all("value_loss" in row for row in rows)


def test_only_the_critic_learns_while_it_warms_up(tmp_path: Path) -> None:
    run = trainer(ppo(), tmp_path / "run")
    before = {name: p.clone() for name, p in run.parameters.items()}
    (row,) = run.train(1)
    assert all(torch.equal(value, run.parameters[name]) for name, value in before.items())
    assert "loss" not in row
    assert run.updates == 0
    run.train(2)
    assert run.updates == 2
    assert any(not torch.equal(value, run.parameters[name]) for name, value in before.items())


def test_warming_up_counts_the_steps_that_taught_something(policy: Policy, rollouts: RolloutBatch) -> None:
    """In a step in which no row got a reward the critic learns nothing, and is as cold as before."""
    critic = ValueModel(warmup_steps=2).open(policy)
    nothing = rollouts.with_(reward=torch.full((12,), torch.nan, dtype=torch.float64))
    warm = []
    for step, batch in enumerate((nothing, rollouts, nothing, rollouts, nothing), start=1):
        warm.append(critic.warming(step))
        critic.update(batch, step=step, seed=0)
    assert warm == [True, True, True, True, False]
    again = ValueModel(warmup_steps=2).open(policy)
    again.load_state_dict(critic.state_dict())
    assert not again.warming(1)


def test_an_adaptive_kl_penalty_resumes(tmp_path: Path) -> None:
    recipe = ppo(shaping=(KlInReward(coefficient=0.1, target=0.01, horizon=20.0),), steps=3, report_kl=False)
    assert recipe.needs_reference
    whole = trainer(recipe, tmp_path / "whole")
    whole.train()
    trainer(recipe, tmp_path / "halves").train(2)
    again = trainer(recipe, tmp_path / "halves")
    assert again.resume() == 2
    again.train()
    found = [run.recipe.shaping[0] for run in (whole, again)]
    assert isinstance(found[0], KlInReward)
    assert found[0] == found[1]
    assert found[0].current != 0.1
    assert recipe.shaping[0] == KlInReward(coefficient=0.1, target=0.01, horizon=20.0)  # the recipe's own is untouched
    for name, value in whole.parameters.items():
        assert torch.equal(value, again.parameters[name]), f"{name} differs after a resume"


def test_a_base_of_as_many_other_tokens_is_refused(policy: Policy, tmp_path: Path) -> None:
    base = Path(shutil.copytree(resolve_model("tiny"), tmp_path / "swapped"))
    named = json.loads((base / "tokenizer.json").read_text())
    vocabulary = named["model"]["vocab"]
    vocabulary["!"], vocabulary["#"] = vocabulary["#"], vocabulary["!"]
    (base / "tokenizer.json").write_text(json.dumps(named))
    with pytest.raises(BadInputError, match=r"critic\.base"):
        ValueModel(base=str(base)).open(policy)
