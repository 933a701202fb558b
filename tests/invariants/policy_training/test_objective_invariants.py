"""Every method with a ratio, a correction or token weights, on a model: its gradient does not depend on the order of
rows, micro-batches or padding, and at r = 1 it is REINFORCE's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay_policy_training.core.aggregation import aggregate, count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.objectives.kl_cov import KlCov
from assay_policy_training.plugins.objectives.ratio_clip import Dro, Gpg, PpoClip, Reinforce, Sapo, StableReinforce
from assay_policy_training.plugins.objectives.sequence_ratio import Gmpo, Gspo
from assay_policy_training.plugins.objectives.truncated_ratio import Aipo, Cispo, Dppo
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import UpdateContext
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "a rather longer prompt than the others", "and you?")]
TEMPERATURE = 0.8
ROWS, WIDTH = 12, 24


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> RolloutBatch:
    """Rows of several lengths, with rewards, whose mu and old differ from theta and from each other."""
    drawn = TransformersSampler(policy, Sampling(temperature=TEMPERATURE, max_new_tokens=WIDTH)).rollout(
        ITEMS, 4, seed=3, version=0
    )
    lengths = torch.tensor([24, 3, 9, 1, 17, 24, 5, 2, 12, 24, 8, 20])
    mask = (torch.arange(WIDTH) < lengths[:, None]) & drawn.mask
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        scores = policy.scores(drawn, temperature=TEMPERATURE)

    def noise(size: float) -> Tensor:
        return torch.randn(mask.shape, generator=generator) * size * mask

    old = (scores.logp + noise(0.15)) * mask
    return drawn.with_(
        mask=mask,
        loss_mask=mask,
        logp_old=old,
        logp_mu=(old + noise(0.15)) * mask,
        logp_ref=(old + noise(0.1)) * mask,
        entropy=scores.entropy * mask,
        reward=torch.randn(ROWS, generator=generator, dtype=torch.float64),
    )


def trainer(policy: Policy, folder: Path, recipe: str, *overrides: str) -> PolicyLoop:
    read = load_recipe(recipe, [f"sampling.temperature={TEMPERATURE}", "sampling.max_new_tokens=24", *overrides])
    return PolicyLoop(read, policy, ShuffledPrompts(ITEMS, seed=0), [VerifierReward()], folder)


def gradient(policy: Policy, batch: RolloutBatch, folder: Path, recipe: str, *overrides: str) -> Tensor:
    """Of a whole batch by the trainer's own path from rewards to gradients, as one vector."""
    made = trainer(policy, folder, recipe, *overrides)
    prepared, _ = made._advantages(batch)
    policy.model.zero_grad()
    rows = torch.arange(len(batch))
    made.gradients.accumulate(prepared, rows, made.recipe.sampling, TokenMeans(), first=False)
    found = torch.cat([p.grad.flatten().clone() for p in policy.trainable().values() if p.grad is not None])
    policy.model.zero_grad()
    return found


def wider(batch: RolloutBatch, more: int = 7) -> RolloutBatch:
    def pad(values: Tensor, width: int, *, left: bool = False) -> Tensor:
        filler = torch.zeros(len(batch), width, dtype=values.dtype)
        return torch.cat([filler, values] if left else [values, filler], 1)

    names = ("tokens", "mask", "loss_mask", "logp_old", "logp_mu", "logp_ref", "entropy", "token_version")
    return batch.with_(
        **{name: pad(getattr(batch, name), more) for name in names},
        train_input_ids=pad(batch.train_input_ids, 3, left=True),
        train_mask=pad(batch.train_mask, 3, left=True),
    )


#: Recipe -> overrides with which the batch above makes the method act on some rows or tokens and not on others.
METHODS: dict[str, list[str]] = {
    "gspo": ["objective.clip_low=0.02", "objective.clip_high=0.02"],
    "cispo": ["objective.eps_high=0.1"],
    "aipo": ["objective.cap=1.1"],
    "sapo": [],
    "gmpo": ["objective.clip_low=0.1", "objective.clip_high=0.1"],
    "dppo": ["objective.eps_low=0.0001", "objective.eps_high=0.0001"],
    "clip_cov": ["token_weights.0.share=0.1", "token_weights.0.low=0.0"],
    "kl_cov": ["objective.share=0.1"],
    "stable_reinforce": ["modulators.0.bound=1.5"],
    "hapo": ["sampler.kind=transformers"],
    "steer": [],
    "high_entropy_tokens": [],
    "tis": ["corrections.0.cap=1.1", "corrections.0.normalise=true"],
    "mis": ["corrections.0.cap=1.2"],
    "icepop": ["corrections.0.low=0.9", "corrections.0.high=1.1"],
    "geometric_rejection": ["corrections.1.low=0.97", "corrections.1.high=1.03"],
    "trust_region_masking": ["corrections.0.max_k2=0.05"],
}


@pytest.mark.parametrize("recipe", METHODS)
def test_rows_micro_batches_and_padding(policy: Policy, rollouts: RolloutBatch, recipe: str, tmp_path: Path) -> None:
    overrides = METHODS[recipe]
    whole = gradient(policy, rollouts, tmp_path, recipe, "optimisation.micro_batch_rows=12", *overrides)
    assert whole.abs().max() > 1e-4
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    moved = wider(rollouts.select(order))
    other = gradient(policy, moved, tmp_path, recipe, "optimisation.micro_batch_rows=5", *overrides)
    torch.testing.assert_close(other, whole, atol=2e-6, rtol=2e-4)
    # Were the method's setting without effect here, this would show nothing.
    plain = gradient(policy, rollouts, tmp_path, recipe, *NEUTRAL[recipe])
    assert not torch.allclose(plain, whole, atol=1e-5, rtol=1e-2)


#: Settings under which the same recipe does next to nothing of what is its own.
NEUTRAL: dict[str, list[str]] = {
    "gspo": ["objective={kind: ppo_clip}"],
    "cispo": ["objective.eps_high=50.0"],
    "aipo": ["objective.cap=null"],
    "sapo": ["objective={kind: ppo_clip}"],
    "gmpo": ["objective.clip_low=9.0", "objective.clip_high=9.0"],
    "dppo": ["objective.eps_low=1.0", "objective.eps_high=1.0"],
    "clip_cov": ["token_weights=[]"],
    "kl_cov": ["objective.coefficient=0.0"],
    "stable_reinforce": ["modulators=[]"],
    "hapo": ["objective={kind: ppo_clip}"],
    "steer": ["token_weights=[]"],
    "high_entropy_tokens": ["token_weights=[]"],
    "tis": ["corrections=[]"],
    "mis": ["corrections=[]"],
    "icepop": ["corrections=[]"],
    "geometric_rejection": ["corrections=[{kind: sequence_tis}]"],
    "trust_region_masking": ["corrections=[]"],
}


def first_gradient(policy: Policy, batch: RolloutBatch, objective: Any, mode: str) -> Tensor:
    """Gradient with old = mu = theta, as one vector."""
    scores = policy.scores(batch, temperature=TEMPERATURE)
    same = scores.logp.detach()
    batch = batch.with_(logp_old=same, logp_mu=same)
    if hasattr(objective, "prepare"):
        batch = objective.prepare(batch)
    assert batch.adv is not None
    context = UpdateContext(batch.adv, batch.mask, batch.loss_mask, same, same, rows=batch)
    loss, _ = objective.loss(scores.logp, context)
    total = aggregate(loss, batch.loss_mask, count(batch.loss_mask), mode)
    return torch.cat([g.flatten() for g in torch.autograd.grad(total, list(policy.trainable().values()))])


@pytest.mark.parametrize(
    ("objective", "mode"),
    [
        (PpoClip(), "token-mean"),
        (PpoClip(bypass=True), "token-mean"),
        (Cispo(eps_high=0.28), "token-mean"),
        (Cispo(cap_abs=5.0, eps_low=0.2), "token-mean"),
        (Aipo(), "token-mean"),
        (Dro(beta=0.7), "token-mean"),
        (Gpg(), "token-mean"),
        (Sapo(), "token-mean"),
        (Dppo(), "token-mean"),
        (Dppo(divergence="binary_kl"), "token-mean"),
        (KlCov(share=0.5, coefficient=3.0), "token-mean"),
        (StableReinforce(), "token-mean"),
        (Gspo(), "seq-mean-token-mean"),
        (Gmpo(), "seq-mean-token-mean"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_first_update_is_reinforce(policy: Policy, rollouts: RolloutBatch, objective: Any, mode: str) -> None:
    """With old = theta = mu the ratio is 1; for GSPO and GMPO: REINFORCE with equal weight of each row."""
    adv = torch.randn(ROWS, generator=torch.Generator().manual_seed(5))[:, None] * rollouts.mask
    batch = rollouts.with_(adv=adv)
    found = first_gradient(policy, batch, objective, mode)
    torch.testing.assert_close(found, first_gradient(policy, batch, Reinforce(), mode), atol=1e-6, rtol=1e-4)
    assert found.abs().max() > 1e-4
