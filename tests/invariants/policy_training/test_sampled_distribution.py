"""The distribution sampled and the one trained on: a pruned vocabulary (reference oracle [DVP]), a temperature for each
token, and entropies at the sampling temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import score_tokens
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, prune
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.samplers.entropy_temperature import (
    EntropyTemperature,
    EntropyTemperatureSampler,
    temperature_factors,
)
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.token_weights.entropy import EntropyScale
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.gradients import context_of
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import MinWords, NoCommas

CPU = torch.device("cpu")
TEMPERATURE = 0.7
LOG_RATIO = -1.5  #: steep, so that much of the tiny model's vocabulary falls out
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "a rather longer prompt than the others")]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=128)


@pytest.fixture(scope="module")
def pruned(policy: Policy) -> RolloutBatch:
    sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=24, prune_log_ratio=LOG_RATIO)
    return TransformersSampler(policy, sampling).rollout(ITEMS, 6, seed=5, version=0)


def logits_of(policy: Policy, batch: RolloutBatch) -> Tensor:
    """[tokens,V] the model's own logits over the temperature, in row order."""
    ids = torch.cat([batch.train_input_ids, batch.tokens], 1)
    seen = torch.cat([batch.train_mask, batch.mask], 1)
    positions = (seen.long().cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = policy.model(input_ids=ids, attention_mask=seen.long(), position_ids=positions).logits
    found: Tensor = logits[:, batch.train_input_ids.shape[1] - 1 : -1][batch.mask] / TEMPERATURE
    return found


def test_prune_oracle() -> None:
    logits = torch.tensor([[3.0, 2, -4, -12, -14]])
    kept = prune(logits, -13.0)
    assert (~kept.isinf())[0].tolist() == [True, True, True, False, False]
    assert kept.softmax(-1)[0].tolist() == pytest.approx([0.730572, 0.268762, 0.000666, 0, 0], abs=1e-6)
    assert prune(logits, None) is logits


def test_sampler_and_trainer_renormalise_on_the_same_set(policy: Policy, pruned: RolloutBatch) -> None:
    """mu = old: no sampled token is outside the trainer's set, and the log-probs are of what stays."""
    with torch.no_grad():
        scores = policy.scores(pruned, temperature=TEMPERATURE, prune_log_ratio=LOG_RATIO)
    assert not scores.extras["outside"].any()
    torch.testing.assert_close(scores.logp[pruned.mask], pruned.logp_mu[pruned.mask], atol=1e-5, rtol=1e-5)
    logits = logits_of(policy, pruned)
    own = logits.gather(1, pruned.tokens[pruned.mask][:, None]).squeeze(1)
    assert bool((own >= logits.amax(1) + LOG_RATIO - 1e-4).all())
    kept = prune(logits, LOG_RATIO)
    assert float(kept.isinf().float().mean()) > 0.3
    distribution = kept.log_softmax(-1)
    assert distribution.exp().sum(-1).tolist() == pytest.approx([1.0] * len(logits), abs=1e-5)
    expected = distribution.gather(1, pruned.tokens[pruned.mask][:, None]).squeeze(1)
    torch.testing.assert_close(scores.logp[pruned.mask], expected, atol=1e-5, rtol=1e-5)
    entropy = -torch.where(kept.isinf(), 0.0, distribution.exp() * distribution).sum(-1)
    torch.testing.assert_close(scores.entropy[pruned.mask], entropy, atol=1e-5, rtol=1e-5)


def test_tokens_outside_the_trainers_set_get_no_gradient_and_are_counted(policy: Policy, pruned: RolloutBatch) -> None:
    """Tokens drawn from the whole vocabulary, trained with the pruned one."""
    whole = TransformersSampler(policy, Sampling(temperature=TEMPERATURE, max_new_tokens=24))
    batch = whole.rollout(ITEMS, 6, seed=5, version=0)
    batch = batch.with_(adv=batch.mask.float())
    scores = policy.scores(batch, temperature=TEMPERATURE, prune_log_ratio=LOG_RATIO)
    outside = scores.extras["outside"] > 0
    assert 0 < int(outside[batch.mask].sum()) < int(batch.mask.sum())
    assert scores.logp.isfinite().all()
    context = context_of(batch, scores)
    assert torch.equal(context.loss_mask, batch.loss_mask & ~outside)
    assert torch.equal(context.mask, batch.mask)
    unpruned = policy.scores(batch, temperature=TEMPERATURE).logp
    torch.testing.assert_close(scores.logp[outside], unpruned[outside], atol=1e-5, rtol=1e-5)


class Head(torch.nn.Module):
    """A vocabulary head whose logits are a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor([[3.0, 2, -4, -12, -14]]))


def test_gradient_flows_to_kept_logits_only(policy: Policy) -> None:
    """Not through the cut either: the largest logit sets it, detached."""
    from assay_policy_training.core.logprobs import _head_scores

    head = Head()
    for token, outside in ((1, False), (4, True)):
        found = _head_scores(
            lambda state: head.logits, torch.zeros(1, 1), torch.tensor([token]), 1.0, -13.0, frozenset()
        )
        assert bool(found["outside"]) is outside
        (gradient,) = torch.autograd.grad(found["logp"].sum(), head.logits)
        if not outside:
            kept = prune(head.logits.detach(), -13.0).softmax(-1)[0]
            expected = torch.nn.functional.one_hot(torch.tensor(token), 5) - kept
            torch.testing.assert_close(gradient[0], expected)
            assert gradient[0, 3:].tolist() == [0.0, 0.0]


def test_pruned_scores_do_not_depend_on_chunks(policy: Policy, pruned: RolloutBatch) -> None:
    arguments = (policy.model, pruned.train_input_ids, pruned.train_mask, pruned.tokens, pruned.mask)
    found = [
        score_tokens(*arguments, temperature=TEMPERATURE, prune_log_ratio=LOG_RATIO, chunk_tokens=chunk)
        for chunk in (3, 1000)
    ]
    torch.testing.assert_close(found[0].logp, found[1].logp, atol=1e-5, rtol=1e-5)
    assert torch.equal(found[0].extras["outside"], found[1].extras["outside"])


def trainer(folder: Path, recipe: str, *overrides: str) -> PolicyLoop:
    folder.mkdir(exist_ok=True)
    small = ["sampling.prompts_per_step=2", "sampling.group_size=4", "sampling.max_new_tokens=12"]
    read = load_recipe(recipe, [*small, "optimisation.lr=0.001", "report_kl=false", "checkpoint_every=1", *overrides])
    prompts = ShuffledPrompts([PromptItem(i.prompt, (NoCommas(), MinWords(3))) for i in ITEMS], seed=0)
    return PolicyLoop(read, Policy("tiny", device=CPU, max_prompt_tokens=128), prompts, [VerifierReward()], folder)


def test_share_outside_is_a_metric(tmp_path: Path) -> None:
    rows = trainer(tmp_path, "safe_vocabulary", f"sampling.prune_log_ratio={LOG_RATIO}").train(2)
    assert rows[0]["outside_share"] == 0.0
    assert rows[0]["sampler_gap_max"] < 1e-4
    plain = trainer(tmp_path / "plain", "dr_grpo").train(1)
    assert "outside_share" not in plain[0]


def test_pruning_needs_a_threshold_below_the_largest() -> None:
    with pytest.raises(BadInputError):
        Sampling(prune_log_ratio=0.0)


def test_entropies_are_at_the_sampling_temperature(policy: Policy, pruned: RolloutBatch) -> None:
    """Selection by entropy at temperature 1 of tokens sampled at .7 would pick others."""
    with torch.no_grad():
        entropy = policy.scores(pruned, temperature=TEMPERATURE).entropy[pruned.mask]
        other = policy.scores(pruned, temperature=1.0).entropy[pruned.mask]
    logp = logits_of(policy, pruned).log_softmax(-1)
    torch.testing.assert_close(entropy, -(logp.exp() * logp).sum(-1), atol=1e-5, rtol=1e-5)
    assert float((entropy - other).abs().max()) > 0.01


def test_temperature_follows_entropy() -> None:
    """Uncertain: 1.05; at the pivot: 1; certain: .95. Logits that are pruned away do not count."""
    scale = EntropyScale(pivot=0.0, deviation=1.0, highest=0.7, lowest=-3.0)
    even, certain = torch.zeros(1, 8), torch.tensor([[30.0, *[0.0] * 7]])
    assert float(temperature_factors(even, scale, 0.05)) == pytest.approx(1.05)
    assert float(temperature_factors(certain, scale, 0.05)) == pytest.approx(0.95)
    at_e = torch.full((1, 3), -torch.inf)
    at_e[0, :2] = 0.0
    assert float(temperature_factors(at_e, EntropyScale(-0.3665129, 1.0, 1.0, -1.0), 0.05)) == pytest.approx(
        1.0, abs=1e-6
    )


def test_first_step_is_drawn_at_the_plain_temperature(policy: Policy) -> None:
    sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=12)
    hot = EntropyTemperature(0.05).open(policy, sampling)
    plain = TransformersSampler(policy, sampling)
    first, expected = (sampler.rollout(ITEMS, 3, seed=1, version=0) for sampler in (hot, plain))
    assert torch.equal(first.tokens, expected.tokens)
    assert torch.equal(first.logp_mu, expected.logp_mu)
    with torch.no_grad():
        entropy = policy.scores(first, temperature=TEMPERATURE).entropy
    hot.observe(StepReport(1, {}, first, first.with_(entropy=entropy)))
    after = hot.rollout(ITEMS, 3, seed=1, version=0)
    # Log-probs are of the distribution actually sampled: that of the token's own temperature.
    logits = logits_of(policy, after)
    assert hot.scale is not None
    heat = temperature_factors(logits, hot.scale, 0.05)
    assert float((heat - 1).abs().max()) > 0.01
    own = (logits / heat).log_softmax(-1).gather(1, after.tokens[after.mask][:, None]).squeeze(1)
    torch.testing.assert_close(after.logp_mu[after.mask], own, atol=1e-4, rtol=1e-4)


def test_scale_is_remembered(policy: Policy, pruned: RolloutBatch) -> None:
    first: Any = EntropyTemperature().open(policy, Sampling())
    assert isinstance(first, EntropyTemperatureSampler)
    assert first.state_dict() == {"scale": None}
    entropy = torch.rand(pruned.mask.shape, generator=torch.Generator().manual_seed(0))
    first.observe(StepReport(1, {}, pruned, pruned.with_(entropy=entropy)))
    second = EntropyTemperature().open(policy, Sampling())
    second.load_state_dict(first.state_dict())
    assert second.scale == first.scale
    second.observe(StepReport(2, {}, pruned, None))
    assert second.scale == first.scale
    with pytest.raises(BadInputError):
        EntropyTemperature(spread=1.0)


def test_hapo_corrects_its_samplers_temperature(tmp_path: Path) -> None:
    """From the second step on mu is not old, and the recipe's correction says by how much."""
    rows = trainer(tmp_path, "hapo", "sampler.spread=0.3").train(2)
    assert rows[0]["mismatch_worst"] < 1e-4
    assert rows[1]["mismatch_worst"] > 1e-3
    assert 0 < rows[1]["tis_ess"] < 1


@pytest.mark.parametrize(
    ("recipe", "metric", "overrides"),
    [
        ("tis", "tis_clipped_share", ["corrections.0.cap=1.0"]),
        ("icepop", "icepop_rejected_tokens", ["corrections.0.low=0.999", "corrections.0.high=1.001"]),
        ("mis", "mis_rejected_rows", ["corrections.0.cap=1.001"]),
        ("geometric_rejection", "geometric_rejected_rows", ["corrections.1.low=0.9999", "corrections.1.high=1.0001"]),
        ("trust_region_masking", "trust_region_rejected_rows", ["corrections.0.max_k2=0.00001"]),
    ],
)
def test_corrections_act_on_rollouts_of_older_weights(
    tmp_path: Path, recipe: str, metric: str, overrides: list[str]
) -> None:
    """Step 1 is drawn by its own weights, the next ones by weights that are a step old."""
    rows = trainer(tmp_path, recipe, "asynchrony.lag=1", "optimisation.lr=0.01", *overrides).train(5)
    assert rows[0]["mismatch_worst"] < 1e-4
    assert rows[2]["mismatch_worst"] > 1e-3
    assert rows[2]["mismatch_k3"] > 0
    assert max(row[metric] for row in rows[2:]) > 0
