"""Steered decoding = the plain sampler at beta 0; values side by side = one by one; its KL = that of whole passes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from assay.domain import Message
from assay.errors import BadInputError
from assay.statistics.best_of_n import kl_best_of
from assay_policy_training.core.logprobs import full_kl
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.decoding.beam import Beam
from assay_policy_training.decoding.best_of_n import BestOfN
from assay_policy_training.decoding.kind import DecodingInputs, RewardedText
from assay_policy_training.decoding.token_values import ValueTraining, value_critic, with_last_states
from assay_policy_training.decoding.value_augmented import SteeredSampler, ValueAugmented
from assay_policy_training.plugins.critics.value_model import ValueCritic
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

PROMPTS = ("Say a.", "Count to ten, please.", "b?", "Why is it so?")


class Share:
    """Share of bytes below 64 in what was written: a reward of every prefix."""

    name = "low"

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        return Rewards.of(self.name, [sum(ord(c) < 64 for c in text) / 8 for text in responses])


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)


@pytest.fixture
def items() -> list[PromptItem]:
    return [PromptItem((Message("user", text),)) for text in PROMPTS]


@pytest.fixture
def inputs(policy: Policy, items: list[PromptItem], tmp_path: Path) -> DecodingInputs:
    return DecodingInputs(policy, Sampling(max_new_tokens=8), [Share()], 0, lambda: items, "low", tmp_path)


@pytest.fixture
def critic(inputs: DecodingInputs) -> ValueCritic:
    critic = ValueTraining().critic(inputs, 1)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        critic.score.weight.normal_()
    return critic


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_at_beta_0_it_is_the_plain_sampler(
    inputs: DecodingInputs, critic: ValueCritic, items: list[PromptItem], top_p: float
) -> None:
    inputs = replace(inputs, sampling=Sampling(max_new_tokens=8, temperature=0.7, top_p=top_p, rows_at_once=2))
    plain = TransformersSampler(inputs.policy, inputs.sampling).rollout(items, 1, seed=[1, 2, 3, 4], version=0)
    decoding = SteeredSampler(inputs, critic, 0.0, 5).steered(items, [1, 2, 3, 4])
    assert torch.equal(decoding.tokens, plain.tokens)
    assert decoding.logp.numpy() == pytest.approx(plain.logp_mu.numpy(), abs=1e-5)
    assert float(decoding.kl.abs().max()) < 1e-6


def test_candidates_side_by_side_have_the_values_of_rows_of_their_own(
    inputs: DecodingInputs, critic: ValueCritic, items: list[PromptItem]
) -> None:
    sampler, beta, top_k = TransformersSampler(inputs.policy, inputs.sampling), 2.0, 5
    steered = SteeredSampler(inputs, critic, beta, top_k)
    seeds = [5, 6, 7, 8]
    decoding = steered.steered(items, seeds)
    batch = sampler.rollout(items, 1, seed=seeds, version=0)
    batch = batch.with_(tokens=decoding.tokens, mask=decoding.mask, loss_mask=decoding.mask)
    for row in range(len(items)):
        context = batch.gen_input_ids[row][batch.gen_mask[row]].tolist()
        written = batch.tokens[row][batch.mask[row]].tolist()
        for t in range(len(written)):
            ids = torch.tensor([context + written[:t]])
            with torch.no_grad():
                base = inputs.policy.model(input_ids=ids).logits[:, -1].float()
            candidates = base.topk(top_k).indices[0].tolist()
            values = []
            for token in candidates:
                tokens = torch.tensor([[*written[:t], token, 0]])
                mask = torch.ones_like(tokens, dtype=torch.bool)
                one = batch.select([row]).with_(
                    tokens=tokens, mask=mask, loss_mask=mask, logp_mu=mask.float(), token_version=mask.long()
                )
                values.append(float(critic.values(one)[0, -1]))  # of the state before the padding: after the candidate
            expected = base.clone()
            expected[0, candidates] += beta * (torch.tensor(values) - sum(values) / top_k)
            logp = expected.log_softmax(-1)[0, written[t]]
            assert float(decoding.logp[row, t]) == pytest.approx(float(logp), abs=1e-4)
            assert float(decoding.kl[row, t]) == pytest.approx(float(full_kl(expected, base)), abs=1e-4)
        assert float(decoding.kl[row].sum()) > 0.01


def test_the_last_state_has_the_reward_as_its_target_and_a_stored_model_is_read(
    inputs: DecodingInputs, items: list[PromptItem]
) -> None:
    batch = TransformersSampler(inputs.policy, inputs.sampling).rollout(items, 2, seed=3, version=0)
    wider = with_last_states(batch)
    assert wider.lengths.tolist() == (batch.lengths + 1).tolist()
    assert torch.equal(wider.tokens[:, :-1], batch.tokens)
    training = ValueTraining(samples=2, epochs=1, lr=1e-3)
    critic, figures = value_critic(training, inputs)
    assert (figures["prompts"], figures["rows"], figures["rewards_missing"]) == (4, 8, 0)
    again, stored = value_critic(training, replace(inputs, rewards=[]))  # asks no reward: it is not trained again
    assert stored == figures
    assert torch.equal(again.values(wider), critic.values(wider))


@pytest.mark.slow
def test_a_trained_value_raises_the_reward_and_beta_buys_it_with_kl(
    inputs: DecodingInputs, items: list[PromptItem]
) -> None:
    many, seeds = items * 8, list(range(32))
    rewards, kls = [], []
    for beta in (0.0, 8.0, 24.0):
        plan = ValueAugmented(beta=beta, top_k=300, samples=16, epochs=6, batch_rows=8, lr=3e-3)
        decoded = plan.open(inputs)(many, seeds)
        rewards.append(sum(row.chosen.reward for row in decoded) / len(decoded))
        kls.append(sum(row.kl for row in decoded) / len(decoded))
    assert rewards[2] > rewards[0] + 0.1
    assert kls[0] < 1e-5 < kls[1] < kls[2]


def test_blocks_of_one_candidate_and_best_of_1_are_samples_and_more_candidates_are_better(
    inputs: DecodingInputs, items: list[PromptItem]
) -> None:
    seeds = [11, 12, 13, 14]
    plain = Beam(block_tokens=3, candidates=1).open(inputs)(items, seeds)
    assert [(row.kl, row.generated) for row in plain] == [(0.0, row.chosen.tokens) for row in plain]
    wide = Beam(block_tokens=3, candidates=6, width=2).open(inputs)(items, seeds)
    assert sum(row.chosen.reward for row in wide) > sum(row.chosen.reward for row in plain)
    assert [row.scored for row in wide] == [36] * 4
    best = BestOfN(n=5).open(inputs)(items, seeds)
    for row in best:
        assert row.chosen.reward == max(row.candidates)
        assert row.kl == pytest.approx(kl_best_of(5))
    (one,) = BestOfN(n=1).open(inputs)(items[:1], seeds[:1])
    rollout = TransformersSampler(inputs.policy, inputs.sampling).rollout(items[:1], 1, seed=seeds[:1], version=0)
    assert one.chosen.text == rollout.responses[0]


def test_a_stop_string_that_begins_in_an_earlier_block_ends_the_response(
    inputs: DecodingInputs, items: list[PromptItem]
) -> None:
    plan = Beam(block_tokens=3, candidates=1)
    free = plan.open(inputs)(items[:1] * 40, list(range(40)))
    # A token is a byte: where the first four characters are ASCII, the third and the fourth are in two blocks.
    seed, text = next((n, r.chosen.text) for n, r in enumerate(free) if r.chosen.text[:4].isascii())
    sampling = replace(inputs.sampling, stop=(text[2:4],))
    (cut,) = plan.open(replace(inputs, sampling=sampling))(items[:1], [seed])
    assert (cut.chosen.text, cut.chosen.tokens, cut.chosen.finished) == (text[:4], 4, True)


def test_a_window_shorter_than_the_rows_is_refused_before_values_are_trained(inputs: DecodingInputs) -> None:
    config = MistralConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=9)
    config.sliding_window = 539
    policy = copy(inputs.policy)
    policy.model = MistralForCausalLM(config)
    with pytest.raises(
        BadInputError, match=r"POLICY.*20 next tokens in one pass of a MistralForCausalLM with up to 540"
    ):
        ValueAugmented().open(replace(inputs, policy=policy))


def test_what_has_no_reward_ranks_below_all_others() -> None:
    texts = [RewardedText("a", 1, finished=True), RewardedText("b", 1, finished=True, reward=-1e9)]
    assert max(texts, key=lambda text: text.rank).text == "b"
