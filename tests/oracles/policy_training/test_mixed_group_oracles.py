"""Reference numbers of methods whose groups have rows of two sources."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, derived_seed, group_seeds
from assay_policy_training.plugins.auxiliary.kl import KlLoss
from assay_policy_training.plugins.contexts.revise import PREVIOUS, REVISED, Revise
from assay_policy_training.plugins.estimators.own_rows import above_own_mean, win_advantage
from assay_policy_training.plugins.modulators.exploration import exploration_advantage
from assay_policy_training.plugins.objectives.ratio_clip import Reinforce
from assay_policy_training.plugins.objectives.rl_plus import RlPlus, assumed_external, mixture_ratio
from assay_policy_training.plugins.protocols import UpdateContext
from assay_policy_training.plugins.samplers.mixed_groups import Demonstrations, GeometricMixture
from assay_policy_training.plugins.samplers.self_revision import SelfRevision
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

TOLERANCE = 1e-6
NAN = float("nan")
CPU = torch.device("cpu")
SAMPLING = Sampling(max_new_tokens=8)
ITEMS = [
    PromptItem((Message("user", text),), meta={"responses": [{"text": "a wise answer"}]})
    for text in ("hi", "a longer prompt")
]


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=64, with_reference=True)


def test_multiple_importance_sampling() -> None:
    logp, old = numbers(0.2).log(), numbers(0.1).log()
    assert mixture_ratio(logp, old, numbers(0.5).log()).item() == pytest.approx(2 * 0.2 / (0.1 + 0.5), abs=TOLERANCE)
    assert mixture_ratio(logp, old, assumed_external(old)).item() == pytest.approx(0.4 / 0.65, abs=TOLERANCE)
    assert exploration_advantage(numbers(1), logp).item() == pytest.approx(0.64, abs=TOLERANCE)


def test_rl_plus_is_unbiased_under_the_two_policies_together() -> None:
    """Means under old and under external of f theta / ((old + external) / 2) add up to twice f's mean under theta."""
    theta, old, external = numbers(0.5, 0.3, 0.2), numbers(0.2, 0.2, 0.6), numbers(0.1, 0.8, 0.1)
    values = numbers(3, -1, 7)
    weighted = values * mixture_ratio(theta.log(), old.log(), external.log())
    assert float(((old + external) / 2 * weighted).sum()) == pytest.approx(float((theta * values).sum()), abs=TOLERANCE)


def test_baseline_is_the_own_rows_mean() -> None:
    own, group = torch.tensor([True, True, False, True, False]), torch.tensor([0, 0, 0, 1, 1])
    advantage = above_own_mean(numbers(1, 0, 1, NAN, 1), group, own)
    assert advantage.tolist() == [0.5, -0.5, 0.5, 0, 0], "no own row with a reward: no baseline, no advantage"


def test_rl_plus_of_both_sources(policy: Policy) -> None:
    """The sampler's groups, each two own rows and the recorded one; the loss by hand from the batch's own tensors."""
    batch = Demonstrations(count=1).open(policy, SAMPLING).rollout(ITEMS, 3, seed=5, version=0)
    alone = TransformersSampler(policy, SAMPLING).rollout(ITEMS, 2, seed=5, version=0)
    assert batch.source == ("policy", "policy", "recorded") * 2
    assert [batch.responses[row] for row in (2, 5)] == ["a wise a"] * 2, "cut at the limit of 8 tokens"
    assert [batch.responses[row] for row in (0, 1, 3, 4)] == list(alone.responses), "own rows are drawn as without"
    assert len(set(batch.uid)) == 2
    logp = (batch.logp_mu + 0.1).clamp(max=-0.05).requires_grad_()
    adv = torch.where(batch.mask, torch.tensor([0.5, -0.5, 1.0] * 2)[:, None], 0.0)
    context = UpdateContext(adv, batch.mask, batch.loss_mask, batch.logp_mu, batch.logp_mu, rows=batch)
    loss, reports = RlPlus(gamma=2.0).loss(logp, context)
    old, pi = batch.logp_mu.exp(), logp.detach().exp()
    by_hand = -adv * pi / old
    by_hand[[2, 5]] = (-adv * (1 - pi) ** 2 * 2 * pi / (old + (old + 1) / 2))[[2, 5]]
    torch.testing.assert_close(loss.detach()[batch.mask], by_hand[batch.mask])
    (gradient,) = torch.autograd.grad(loss[batch.mask].sum(), logp)
    torch.testing.assert_close(gradient[batch.mask], by_hand[batch.mask])  # each term is proportional to theta
    assert reports["recorded_share"][:, 0].tolist() == [0, 0, 1] * 2


def test_win_advantage() -> None:
    reward, group = numbers(1, 1, NAN, 0, 2, 1, 0, 5), torch.tensor([0, 1, 0, 0, 0, 2, 1, 3])
    opponent = torch.tensor([False, False, False, True, True, False, True, True])
    advantage = win_advantage(reward, group, opponent)
    expected = [0.0, 0.231059, 0, 0, 0, 0, 0, 0]
    assert advantage.tolist() == pytest.approx(expected, abs=TOLERANCE)


def test_opponents_are_drawn_from_the_geometric_mixture() -> None:
    """Every token's log-prob under the normalised pi^.7 ref^.3, computed without a cache; own rows as without it."""
    policy = Policy("tiny", device=CPU, max_prompt_tokens=64, with_reference=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    sampler = GeometricMixture(count=2, mixture=0.3).open(policy, replace(SAMPLING, rows_at_once=3))
    batch = sampler.rollout(ITEMS, 3, seed=5, version=0)
    alone = TransformersSampler(policy, SAMPLING).rollout(ITEMS, 1, seed=5, version=0)
    assert batch.source == ("policy", "opponent", "opponent") * 2
    assert [batch.responses[row] for row in (0, 3)] == list(alone.responses)
    assert batch.loss_mask.any(1).tolist() == [True, False, False] * 2
    for row in (1, 2, 4, 5):
        context = batch.gen_input_ids[row][batch.gen_mask[row]]
        tokens = batch.tokens[row][batch.mask[row]]
        ids = torch.cat([context, tokens])[None]
        with torch.no_grad(), policy.reference_model() as reference:
            own, other = (model(input_ids=ids).logits[0, len(context) - 1 : -1] for model in (policy.model, reference))
        mixed = (0.7 * own.log_softmax(-1) + 0.3 * other.log_softmax(-1)).log_softmax(-1)
        of_tokens = mixed.gather(1, tokens[:, None]).squeeze(1)
        torch.testing.assert_close(batch.logp_mu[row][batch.mask[row]], of_tokens, atol=1e-4, rtol=1e-4)
        assert (own - other).abs().max() > 0.01, "the two models differ"


def test_nash_md_is_the_frameworks_loss() -> None:
    """beta sum_t sg(d_t) log pi_t - (P - 1/2) sum_t log pi_t, as TRL's trainer has it: the same gradient."""
    logp = torch.tensor([[-1.0, -2.0], [-0.5, -1.5]]).requires_grad_()
    ref, mask = torch.tensor([[-1.2, -1.7], [-0.9, -1.0]]), torch.ones(2, 2, dtype=torch.bool)
    advantage = torch.tensor([0.231059, -0.1])
    d = (logp - ref).detach()
    theirs = (0.1 * (d * logp).sum(1) - advantage * logp.sum(1)).mean()
    context = UpdateContext(advantage[:, None].expand(2, 2), mask, mask, logp.detach(), logp.detach(), logp_ref=ref)
    loss, _ = Reinforce().loss(logp, context)
    ours = (loss + 0.1 * KlLoss(coefficient=0.1, estimator="k2").loss(logp, context)).sum(1).mean()
    for expected, gradient in zip(torch.autograd.grad(theirs, logp), torch.autograd.grad(ours, logp), strict=True):
        torch.testing.assert_close(gradient, expected)


def test_self_revision_draws_the_second_answer_after_the_first(policy: Policy) -> None:
    """The improvement is what the policy writes to the prompt, the answer and the request; six rows a pair follow."""
    sampler = SelfRevision().open(policy, SAMPLING)
    batch = sampler.rollout(ITEMS, 2, seed=5, version=0)
    plain = TransformersSampler(policy, SAMPLING)
    alone = plain.rollout(ITEMS, 1, seed=5, version=0)
    records = [item.meta["recorded"] for item in batch.items]
    assert sorted((record["place"], record["revision"]) for record in records) == [(0, False)] * 2 + [(1, True)] * 2
    for row, record in enumerate(records):
        assert batch.tokens[row][batch.mask[row]].tolist() == record["tokens"]
        if record["revision"]:
            first = alone.responses[row // 2]
            seed = derived_seed(group_seeds(5, 2)[row // 2], "revision", 0)
            revised = plain.rollout([Revise().revising(ITEMS[row // 2], first)], 1, seed=[seed], version=0)
            assert revised.tokens[0][revised.mask[0]].tolist() == record["tokens"]
    assert torch.equal(batch.train_input_ids, batch.gen_input_ids)
    redraws = Revise().again(batch, 1)
    more = sampler.rollout([redraw.item for redraw in redraws], 2, seed=6, version=0)
    assert set(more.source) == {REVISED}
    places = [(item.meta["recorded"]["place"], item.meta[PREVIOUS]) for item in more.items]
    assert sorted(places) == sorted([(answer, previous) for answer in (0, 1) for previous in (0, 1)] * 2)
    assert set(more.responses) == set(batch.responses), "the same answers, after each other"
