"""Reference numbers of methods whose groups have rows of two sources."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.estimators.own_rows import above_own_mean
from assay_policy_training.plugins.modulators.exploration import exploration_advantage
from assay_policy_training.plugins.objectives.rl_plus import RlPlus, assumed_external, mixture_ratio
from assay_policy_training.plugins.protocols import UpdateContext
from assay_policy_training.plugins.samplers.mixed_groups import Demonstrations
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
