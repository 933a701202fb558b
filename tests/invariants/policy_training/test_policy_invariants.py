"""What must not change a loss, gradient, log-prob or training: order, batching, padding, chunks, a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from assay.domain import Message
from assay_policy_training.core import logprobs
from assay_policy_training.core.aggregation import MODES, LossAggregation, count
from assay_policy_training.core.batch import RolloutBatch, dr_grpo, rloo
from assay_policy_training.core.logprobs import score_tokens
from assay_policy_training.core.policy import Lora, Policy, reload_difference
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, top_p_filter
from assay_policy_training.plugins.auxiliary.kl import KlLoss
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.estimators.group_relative import grpo
from assay_policy_training.plugins.objectives.ratio_clip import PpoClip, Reinforce
from assay_policy_training.plugins.prompts.source import ShuffledPrompts, load_prompts
from assay_policy_training.plugins.protocols import Rewards, UpdateContext
from assay_policy_training.plugins.samplers.key_value_cache import BufferedLayer
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "a rather longer prompt than the others", "and you?")]
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> RolloutBatch:
    """12 rows; row lengths differ, and one row is not trained on."""
    drawn = _sampler(policy, max_new_tokens=24).rollout(ITEMS, 4, seed=3, version=0)
    lengths = torch.tensor([24, 3, 9, 1, 17, 24, 5, 2, 12, 24, 8, 20])
    mask = (torch.arange(24) < lengths[:, None]) & drawn.mask
    loss_mask = mask.clone()
    loss_mask[4] = False
    adv = torch.randn(12, generator=torch.Generator().manual_seed(5))[:, None] * mask
    noise = torch.randn(mask.shape, generator=torch.Generator().manual_seed(6)) * 0.3
    return drawn.with_(
        mask=mask, loss_mask=loss_mask, adv=adv, logp_old=drawn.logp_mu + noise * mask, logp_mu=drawn.logp_mu
    )


def _sampler(policy: Policy, **options: Any) -> TransformersSampler:
    return TransformersSampler(policy, Sampling(temperature=TEMPERATURE, **options))


def _gradient(policy: Policy, batch: RolloutBatch, mode: str, pieces: list[Tensor], objective: Any = None) -> Tensor:
    """Gradient of PPO + k3 KL over the given split into micro-batches, as one vector."""
    counts = count(batch.loss_mask)
    aggregate, kl = LossAggregation(mode, max_length=24), KlLoss(0.1)
    loss = torch.zeros(())
    for rows in pieces:
        part = batch.select(rows)
        scores = policy.scores(part, temperature=TEMPERATURE)
        assert part.adv is not None
        old = scores.logp.detach() if part.logp_old is None else part.logp_old
        ref = policy.reference_logp(part, temperature=TEMPERATURE)
        context = UpdateContext(part.adv, part.mask, part.loss_mask, old, part.logp_mu, ref)
        matrix, _ = (objective or PpoClip()).loss(scores.logp, context)
        loss = loss + aggregate(matrix, context.loss_mask, counts)
        loss = loss + 0.1 * aggregate(kl.loss(scores.logp, context), context.loss_mask, counts)
    gradients = torch.autograd.grad(loss, list(policy.trainable().values()))
    return torch.cat([g.flatten() for g in gradients])


@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_rows_and_padding_do_not_change_the_gradient(
    policy: Policy, rollouts: RolloutBatch, mode: str
) -> None:
    whole = _gradient(policy, rollouts, mode, [torch.arange(12)])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    split = _gradient(policy, rollouts, mode, list(order.tensor_split(5)))
    torch.testing.assert_close(split, whole, atol=1e-6, rtol=1e-4)

    def wider(values: Tensor) -> Tensor:
        return torch.cat([values, torch.zeros(12, 7, dtype=values.dtype)], 1)

    assert rollouts.adv is not None
    assert rollouts.logp_old is not None
    padded = rollouts.with_(
        **{
            name: wider(getattr(rollouts, name))
            for name in ("tokens", "mask", "loss_mask", "adv", "logp_old", "logp_mu")
        },
        train_input_ids=torch.cat([torch.zeros(12, 3, dtype=torch.long), rollouts.train_input_ids], 1),
        train_mask=torch.cat([torch.zeros(12, 3, dtype=torch.bool), rollouts.train_mask], 1),
    )
    torch.testing.assert_close(_gradient(policy, padded, mode, [torch.arange(12)]), whole, atol=1e-6, rtol=1e-4)
    assert whole.abs().max() > 1e-4


def test_first_minibatch_ppo_is_reinforce(policy: Policy, rollouts: RolloutBatch) -> None:
    """With old = theta the ratio is 1 and the clipped objective has the gradient of -A log pi."""
    fresh = rollouts.with_(logp_old=None)
    pieces = [torch.arange(12)]
    ppo = _gradient(policy, fresh, "token-mean", pieces, PpoClip())
    plain = _gradient(policy, fresh, "token-mean", pieces, Reinforce())
    torch.testing.assert_close(ppo, plain, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("rows_at_once", [4, 64])
def test_sampler_log_probs_are_the_trainers(policy: Policy, rows_at_once: int) -> None:
    """mu = old: the ratio of the first minibatch is 1, whatever the batches in which rollouts were drawn."""
    batch = _sampler(policy, max_new_tokens=24, rows_at_once=rows_at_once).rollout(ITEMS, 4, seed=1, version=0)
    with torch.no_grad():
        logp = policy.scores(batch, temperature=TEMPERATURE).logp
    ratio = (logp - batch.logp_mu).exp()
    assert float((ratio - 1).abs().max()) < 1e-5
    assert float(batch.logp_mu[batch.mask].max()) < 0


@pytest.mark.parametrize("rows_at_once", [4, 8, 12, 64])
def test_prompts_join_rows_under_way(monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    """Rows end soon and at different lengths; whoever shares the batch, log-probs are the trainer's."""
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128)
    policy.model.generation_config.eos_token_id = list(range(0, 256, 9))
    joined: list[int] = []
    join = BufferedLayer.join

    def counted(layer: BufferedLayer, other: DynamicLayer, *, drop: int) -> None:
        joined.append(drop)
        join(layer, other, drop=drop)

    monkeypatch.setattr(BufferedLayer, "join", counted)
    items = [PromptItem((Message("user", "word " * number + "?"),)) for number in (3, 1, 9, 2, 14, 5, 1)]
    sampler = _sampler(policy, max_new_tokens=24, rows_at_once=rows_at_once)
    batch = sampler.rollout(items, 4, seed=1, version=0)
    assert bool(joined) == (4 < rows_at_once < 28)
    assert len(set(batch.lengths.tolist())) > 5
    ends = torch.isin(batch.tokens, torch.tensor(sorted(policy.end_ids))) & batch.mask
    assert torch.equal(ends.any(1), batch.finished)
    assert torch.equal(ends.int().argmax(1)[batch.finished], batch.lengths[batch.finished] - 1)
    with torch.no_grad():
        logp = policy.scores(batch, temperature=TEMPERATURE).logp
    assert float((logp - batch.logp_mu)[batch.mask].abs().max()) < 1e-5
    parts = list(sampler.stream(items, 4, seed=1, version=0))
    assert [part.prompts[0] for part in parts] == [item.prompt for item in items]
    assert torch.equal(torch.cat([part.tokens for part in parts]), batch.tokens)


def test_top_p_log_probs_are_of_the_distribution_sampled(policy: Policy) -> None:
    batch = _sampler(policy, max_new_tokens=8, top_p=0.6).rollout(ITEMS[:2], 2, seed=2, version=0)
    for row in range(len(batch)):
        context = batch.gen_input_ids[row][batch.gen_mask[row]]
        own = batch.tokens[row][batch.mask[row]]
        with torch.no_grad():
            logits = policy.model(input_ids=torch.cat([context, own])[None]).logits[0, len(context) - 1 : -1]
        kept = top_p_filter(logits / TEMPERATURE, 0.6).log_softmax(-1)
        expected = kept.gather(1, own[:, None]).squeeze(1)
        torch.testing.assert_close(batch.logp_mu[row][batch.mask[row]], expected, atol=1e-4, rtol=1e-4)


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log()
    assert top_p_filter(logits, 0.6).isinf().tolist() == [[True, False, False]]
    assert top_p_filter(logits, 0.4).isinf().tolist() == [[True, False, True]]
    assert not top_p_filter(logits, 1.0).isinf().any()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_of_the_vocabulary_head_change_nothing(policy: Policy, rollouts: RolloutBatch, chunk: int) -> None:
    """Against the model's own logits; one chunk size, another, and all at once."""
    b = rollouts
    found = score_tokens(
        policy.model, b.train_input_ids, b.train_mask, b.tokens, b.mask, temperature=TEMPERATURE, chunk_tokens=chunk
    )
    ids = torch.cat([b.train_input_ids, b.tokens], 1)
    seen = torch.cat([b.train_mask, b.mask], 1)
    positions = (seen.long().cumsum(1) - 1).clamp(min=0)
    logits = policy.model(input_ids=ids, attention_mask=seen.long(), position_ids=positions).logits
    own = (logits[:, b.train_input_ids.shape[1] - 1 : -1] / TEMPERATURE).log_softmax(-1)
    expected = own.gather(2, b.tokens[:, :, None]).squeeze(2)
    torch.testing.assert_close(found.logp[b.mask], expected[b.mask], atol=1e-5, rtol=1e-5)
    entropy = -(own.exp() * own).sum(-1)
    torch.testing.assert_close(found.entropy[b.mask], entropy[b.mask], atol=1e-5, rtol=1e-5)
    assert not found.entropy.requires_grad


def test_a_prompt_computed_once_for_its_group_changes_nothing(
    policy: Policy, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probs and gradients, in whatever order the rows of the groups come, and with a row that says nothing."""
    b = rollouts.select(torch.randperm(len(rollouts), generator=torch.Generator().manual_seed(8)))
    mask = b.mask.clone()
    mask[1] = False
    outcomes = []
    for packs in (True, False):
        policy.model.zero_grad()
        with monkeypatch.context() as patched:
            if not packs:
                patched.setattr(logprobs, "can_pack", lambda *given: False)
            found = score_tokens(
                policy.model, b.train_input_ids, b.train_mask, b.tokens, mask, temperature=TEMPERATURE, chunk_tokens=7
            )
        (found.logp * torch.arange(1, len(b) + 1)[:, None]).sum().backward()  # type: ignore[no-untyped-call]
        gradients = {name: p.grad.clone() for name, p in policy.trainable().items() if p.grad is not None}
        outcomes.append((found.logp.detach(), gradients))
    (packed, gradients), (padded, expected) = outcomes
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)
    assert not packed[1].any()
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-4 * float(gradient.abs().max())), name
    policy.model.zero_grad()


@pytest.mark.parametrize("estimator", [grpo, dr_grpo, rloo])
def test_rows_group_by_uid_in_any_order(estimator: Any) -> None:
    reward = torch.randn(12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    reward[5] = torch.nan
    group = torch.arange(12) % 3
    order = torch.randperm(12, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(estimator(reward[order], group[order]), estimator(reward, group)[order])


class LetterShare:
    """S3: share of lowercase letters; deterministic, so that two runs can be compared bit for bit."""

    def score(self, items: Any, responses: Any) -> Rewards:
        shares = [sum(c.islower() for c in r) / max(1, len(r)) for r in responses]
        return Rewards({"letters": torch.tensor(shares, dtype=torch.float64)}, [()] * len(shares), [{}] * len(shares))


def _recipe(**changes: Any) -> Recipe:
    recipe = load_recipe("grpo", ["sampling.prompts_per_step=2", "sampling.group_size=3", "sampling.max_new_tokens=8"])
    optimisation = replace(recipe.optimisation, lr=1e-3, minibatches=2, epochs=2, micro_batch_rows=2)
    return replace(
        recipe, optimisation=optimisation, checkpoint_every=2, reward=Composition({"letters": 1.0}), **changes
    )


def _trainer(folder: Path, recipe: Recipe) -> PolicyLoop:
    folder.mkdir(exist_ok=True)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=160, lora=recipe.lora, with_reference=True)
    prompts = ShuffledPrompts(load_prompts("constrained:5", seed=0), seed=1)
    return PolicyLoop(recipe, policy, prompts, [LetterShare()], folder)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [Lora(), Lora(rank=2)], ids=["full", "lora"])
def test_two_steps_and_two_more_are_four(tmp_path: Path, lora: Lora) -> None:
    """Weights, metrics and rollouts of a resumed run equal those of an uninterrupted one, bit for bit."""
    recipe = _recipe(lora=lora)
    torch.manual_seed(0)  # LoRA draws its first matrices from the global generator
    whole = _trainer(tmp_path / "whole", recipe)
    whole.train(4)
    torch.manual_seed(0)
    first = _trainer(tmp_path / "parts", recipe)
    first.train(3)  # one step past the checkpoint: that step is forgotten
    torch.manual_seed(99)
    second = _trainer(tmp_path / "parts", recipe)
    assert second.resume() == 2
    second.train(4)
    for name, parameter in whole.parameters.items():
        assert torch.equal(parameter, second.parameters[name]), name
    assert whole.updates == second.updates == 16
    assert (tmp_path / "whole/rollouts.jsonl").read_bytes() == (tmp_path / "parts/rollouts.jsonl").read_bytes()
    assert len((tmp_path / "parts/metrics.jsonl").read_text().splitlines()) == 4


def test_adapter_off_is_the_base(tmp_path: Path) -> None:
    """With LoRA the reference is the model without its adapter: it stays put while the policy moves."""
    recipe = _recipe(lora=Lora(rank=2))
    trainer = _trainer(tmp_path / "lora", recipe)
    base = Policy("tiny", device=CPU, max_prompt_tokens=160)
    trainer.train(2)
    probe = trainer.sampler.rollout(ITEMS, 1, seed=0, version=0)
    with torch.no_grad():
        expected = base.scores(probe, temperature=1.0).logp
        moved = trainer.policy.scores(probe, temperature=1.0).logp
    torch.testing.assert_close(trainer.policy.reference_logp(probe, temperature=1.0), expected)
    assert float((moved - expected).abs().max()) > 1e-4
    # Saved with the adapter merged: a stock checkpoint with the trained policy's log-probs.
    before = {name: value.clone() for name, value in trainer.policy.model.state_dict().items()}
    trainer.policy.save(tmp_path / "merged")
    trained = trainer.policy.float32_logp(probe)
    assert reload_difference(tmp_path / "merged", probe, trained, CPU) == pytest.approx(0, abs=1e-4)
    after = trainer.policy.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())  # merging leaves the policy as it is
    merged = Policy(str(tmp_path / "merged"), device=CPU, max_prompt_tokens=160)
    with torch.no_grad():
        torch.testing.assert_close(merged.scores(probe, temperature=1.0).logp, moved, atol=1e-4, rtol=1e-4)
