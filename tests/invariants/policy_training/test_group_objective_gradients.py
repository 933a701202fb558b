"""Objectives that compare rows: splitting their groups over micro-batches, in any order, changes no gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay_policy_training.core.aggregation import count
from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.contexts.hints import GUIDED
from assay_policy_training.plugins.contexts.revise import Revise
from assay_policy_training.plugins.objectives.guide import GuideLoss
from assay_policy_training.plugins.objectives.offline import Alol, DirectAdvantage
from assay_policy_training.plugins.objectives.preference import Inpo, OnlineDpo, RewardDifference, Srpo
from assay_policy_training.plugins.objectives.rover import Rover
from assay_policy_training.plugins.objectives.verdicts import Drpo, Pacs
from assay_policy_training.plugins.samplers.recorded import RecordedSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.gradients import Gradients, context_of

CPU = torch.device("cpu")
SAMPLING = Sampling(max_new_tokens=10)
ANSWERS = [{"text": "a wise answer", "reward": 1.0}, {"text": "no", "reward": 0.0}]
ITEMS = [PromptItem((Message("user", text),), meta={"responses": ANSWERS}) for text in ("hi", "a longer prompt, too")]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> RolloutBatch:
    """2 groups of 5 rows under weights that have moved since: lengths, rewards and steps differ."""
    drawn = TransformersSampler(policy, SAMPLING).rollout(ITEMS, 5, seed=3, version=0)
    lengths = torch.tensor([10, 3, 9, 1, 7, 10, 5, 2, 6, 8])
    mask = (torch.arange(10) < lengths[:, None]) & drawn.mask
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(mask.shape, generator=generator) * 0.2
    acc = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0, 1, torch.nan], dtype=torch.float64)
    order = torch.randperm(10, generator=generator)
    return drawn.with_(
        mask=mask,
        loss_mask=mask,
        acc=acc,
        reward=torch.randn(10, generator=generator, dtype=torch.float64),
        logp_old=(drawn.logp_mu + noise) * mask,
        logp_ref=(drawn.logp_mu - noise) * mask,
        adv=torch.randn(10, generator=generator)[:, None] * mask,
        segment=(torch.arange(10) // 3).expand(10, 10),
        source=tuple(GUIDED if row % 2 else "policy" for row in range(10)),
        extras={"mean_logp": torch.randn(mask.shape, generator=generator) * 0.1 - 5},
    ).select(order)


def gradient(policy: Policy, objective: Any, batch: RolloutBatch, micro_batch_rows: int) -> tuple[Tensor, float]:
    """By the trainer's own code, as one vector; and the loss."""
    recipe = load_recipe("dr_grpo")
    optimisation = replace(recipe.optimisation, micro_batch_rows=micro_batch_rows)
    recipe = replace(recipe, objective=objective, optimisation=optimisation)
    policy.model.zero_grad()
    loss = Gradients(recipe, policy).accumulate(batch, torch.arange(len(batch)), SAMPLING, TokenMeans(), first=True)
    parts = [torch.zeros(p.shape) if p.grad is None else p.grad for p in policy.trainable().values()]
    found = torch.cat([part.flatten() for part in parts]).clone()
    policy.model.zero_grad()
    return found, loss


def undivided(policy: Policy, objective: Any, batch: RolloutBatch) -> tuple[Tensor, float]:
    """One forward pass over all rows, one backward pass through the whole loss."""
    scores = policy.scores(batch, temperature=1.0)
    loss, _ = objective.batch_loss(objective.row_scores(scores.logp, context_of(batch, scores)).double(), batch)
    parts = torch.autograd.grad(loss, list(policy.trainable().values()))
    return torch.cat([part.flatten() for part in parts]), float(loss.detach())


GROUP_SCOPE = [
    Pacs(),
    Pacs(baseline="grpo", balanced=True, label="reward", threshold=0.0),
    Drpo(max_length=128, delta=0.0),
    Inpo(eta=0.5, tau=0.2),
    OnlineDpo(beta=0.5),
    RewardDifference(beta=0.5, clip=0.3),
]


@pytest.mark.parametrize("objective", GROUP_SCOPE, ids=["pacs", "pacs z-scored", "drpo", "inpo", "online_dpo", "prdp"])
def test_two_passes_are_one(policy: Policy, rollouts: RolloutBatch, objective: Any) -> None:
    whole, loss = undivided(policy, objective, rollouts)
    for rows in (3, 100):
        found, total = gradient(policy, objective, rollouts, rows)
        assert total == pytest.approx(loss, rel=1e-4)
        torch.testing.assert_close(found, whole, atol=1e-4 * float(whole.abs().max()), rtol=1e-3)
    assert float(whole.abs().max()) > 1e-4


def test_drpo_holds_back_where_it_has_moved_too_far(policy: Policy, rollouts: RolloutBatch) -> None:
    """Old log-probs above theta's: KL(old || theta) > 0, and its gradient joins, the same from one pass as from two."""
    assert rollouts.logp_old is not None
    moved = rollouts.with_(logp_old=(rollouts.logp_old + 0.1) * rollouts.mask)
    guarded = Drpo(max_length=128, beta=100.0)
    whole, _ = undivided(policy, guarded, moved)
    found, _ = gradient(policy, guarded, moved, 3)
    torch.testing.assert_close(found, whole, atol=1e-4 * float(whole.abs().max()), rtol=1e-3)
    free, _ = gradient(policy, Drpo(max_length=128, beta=0.0), moved, 3)
    assert float((free - whole).norm()) > 0.1 * float(whole.norm())


def test_two_passes_are_one_for_answers_after_answers(policy: Policy) -> None:
    """SRPO: six rows a prompt, in three contexts."""
    sampler = RecordedSampler(policy, SAMPLING, {})
    plain = sampler.rollout(ITEMS, 2, seed=0, version=0)
    redraws = Revise().again(plain, 1)
    more = sampler.rollout([redraw.item for redraw in redraws], 2, seed=1, version=0)
    batch = merge_batches([plain, more.with_(uid=tuple(redraw.uid for redraw in redraws for _ in range(2)))])
    assert len(batch) == 12
    generator = torch.Generator().manual_seed(1)
    batch = batch.with_(
        adv=torch.zeros(batch.mask.shape),
        reward=torch.tensor([item.meta["recorded"]["reward"] for item in batch.items], dtype=torch.float64),
        logp_ref=batch.logp_mu + torch.randn(batch.mask.shape, generator=generator) * 0.2,
    )
    whole, loss = undivided(policy, Srpo(beta=0.5), batch)
    found, total = gradient(policy, Srpo(beta=0.5), batch, 3)
    assert total == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(found, whole, atol=1e-4 * float(whole.abs().max()), rtol=1e-3)
    assert float(whole.abs().max()) > 1e-4


ROW_SCOPE = [GuideLoss(), GuideLoss(shape="quantile"), GuideLoss(shape="power"), Rover(), Alol(), DirectAdvantage()]


@pytest.mark.parametrize("objective", ROW_SCOPE, ids=["guide", "quantile", "power", "rover", "a_lol", "direct"])
def test_micro_batches_do_not_change_the_gradient(policy: Policy, rollouts: RolloutBatch, objective: Any) -> None:
    batch = objective.prepare(rollouts) if hasattr(objective, "prepare") else rollouts
    whole, loss = gradient(policy, objective, batch, 100)
    found, total = gradient(policy, objective, batch, 3)
    assert total == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(found, whole, atol=1e-4 * float(whole.abs().max()), rtol=1e-3)
    assert float(whole.abs().max()) > 1e-4


def test_group_of_32_in_micro_batches(policy: Policy) -> None:
    """BroRL: however large a group, its gradient is that of the undivided one."""
    recipe = load_recipe("brorl")
    batch = TransformersSampler(policy, SAMPLING).rollout(ITEMS[:1], 32, seed=5, version=0)
    reward = torch.randn(32, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    adv, _ = recipe.estimator(batch.with_(reward=reward))
    batch = batch.with_(reward=reward, adv=adv)
    found = []
    limits: tuple[dict[str, int], ...] = (
        {"rows": 3},
        {"rows": 5, "tokens": 200},
        {"tokens": 1},
        {"tokens": 150},
        {"rows": 32},
    )
    for limit in limits:
        policy.model.zero_grad()
        changes: dict[str, Any] = {f"micro_batch_{name}": value for name, value in limit.items()}
        divided = replace(recipe, optimisation=replace(recipe.optimisation, **changes))
        Gradients(divided, policy).accumulate(batch, torch.arange(32), SAMPLING, TokenMeans(), first=True)
        grads = [p.grad.flatten() for p in policy.trainable().values() if p.grad is not None]
        found.append(torch.cat(grads).clone())
    policy.model.zero_grad()
    whole = found.pop()
    for gradient_of_parts in found:
        torch.testing.assert_close(gradient_of_parts, whole, atol=1e-4 * float(whole.abs().max()), rtol=1e-3)
    assert float(whole.abs().max()) > 1e-4
    assert count(batch.loss_mask).rows == 32


def test_pacs_sums_over_the_rows_own_tokens(policy: Policy, rollouts: RolloutBatch) -> None:
    """Released code sums log-ratios over padding too: right only while padding is alike in both policies."""
    objective = Pacs()
    with torch.no_grad():
        scores = policy.scores(rollouts, temperature=1.0)
    context = context_of(rollouts, scores)
    expected = objective.row_scores(scores.logp, context)
    noise = torch.where(rollouts.loss_mask, 0.0, 3.0)
    torch.testing.assert_close(objective.row_scores(scores.logp + noise, context), expected)
    assert not rollouts.loss_mask.all()


def test_pacs_starts_from_zero_and_learns_from_uniform_groups_later(policy: Policy, rollouts: RolloutBatch) -> None:
    """At the first step every score is 0, and under a leave-one-out baseline a group that is all right has no gradient;
    once the scores differ it has."""
    fresh = rollouts.with_(logp_old=None, acc=torch.ones(10, dtype=torch.float64))
    with torch.no_grad():
        scores = policy.scores(fresh, temperature=1.0)
    assert not Pacs().row_scores(scores.logp, context_of(fresh, scores)).any()
    found, _ = gradient(policy, Pacs(), fresh, 4)
    assert float(found.abs().max()) < 1e-6
    moved, _ = gradient(policy, Pacs(), fresh.with_(logp_old=rollouts.logp_old), 4)
    assert float(moved.abs().max()) > 1e-4


def test_a_group_is_generated_in_pieces_that_fit(policy: Policy) -> None:
    """BroRL: hundreds of rollouts a prompt, never more than `rows_at_once` of them in memory."""
    sizes: list[int] = []

    def watch(_: Any, given: Any, named: dict[str, Any]) -> None:
        sizes.append(len(named["input_ids"] if "input_ids" in named else given[0]))

    handle = policy.model.register_forward_pre_hook(watch, with_kwargs=True)
    batch = TransformersSampler(policy, replace(SAMPLING, rows_at_once=5)).rollout(ITEMS, 12, seed=5, version=0)
    handle.remove()
    assert 1 < max(sizes) <= 5
    assert batch.uid == ("0.0",) * 12 + ("0.1",) * 12
    assert len(set(batch.responses)) > 12
    with torch.no_grad():
        logp = policy.scores(batch, temperature=1.0).logp
    torch.testing.assert_close(batch.logp_mu, logp * batch.mask, atol=1e-4, rtol=1e-4)
