"""A prompt that is read once for its group: what rows that each hold it would draw, and dense attention's numbers."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay.planning.fake_step import measured
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.samplers.decoding import Decoding
from assay_policy_training.plugins.samplers.key_value_cache import BufferedLayer
from assay_policy_training.plugins.samplers.shared_prompts import SharedPrompts
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

ITEMS = [PromptItem((Message("user", "word " * number + "?"),)) for number in (3, 1, 9, 2, 14, 5, 1)]


def drawn(policy: Policy, sampling: Sampling, *, shares: bool, patch: pytest.MonkeyPatch) -> tuple[Decoding, set[int]]:
    """And how many prompts were shared at once."""
    sampler, numbers, attention = TransformersSampler(policy, sampling), set[int](), SharedPrompts.attention

    def counted(self: SharedPrompts, seen: Tensor) -> object:
        numbers.add(len(self.numbers))
        return attention(self, seen)

    with patch.context() as patched:
        patched.setattr(SharedPrompts, "attention", counted)
        decoding = sampler._decoding(ITEMS, 4, 3)
        assert decoding._shares
        decoding._shares = shares
        for _ in decoding.run():
            pass
    return decoding, numbers


@pytest.mark.slow
@pytest.mark.parametrize("rows_at_once", [8, 12, 64])
@pytest.mark.parametrize("ending", [9, 2], ids=["few end", "half end at each token"])
@pytest.mark.parametrize("lora", [0, 4], ids=["all", "lora"])
def test_rows_draw_what_they_draw_with_prompts_of_their_own(
    rows_at_once: int, ending: int, lora: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=128, lora=Lora(rank=lora))
    policy.model.generation_config.eos_token_id = list(range(0, 256, ending))
    sampling = Sampling(max_new_tokens=24, rows_at_once=rows_at_once)
    together, numbers = drawn(policy, sampling, shares=True, patch=monkeypatch)
    apart, none = drawn(policy, sampling, shares=False, patch=monkeypatch)
    assert len(numbers) > 1
    assert not none
    assert torch.equal(together.mask, apart.mask)
    assert torch.equal(together.tokens, apart.tokens)
    assert float((together.logp - apart.logp).abs().max()) < 1e-5


def test_under_autocast_they_round_differently_and_no_more() -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=128, autocast=True)
    batch = TransformersSampler(policy, Sampling(max_new_tokens=24)).rollout(ITEMS, 4, seed=3, version=0)
    with torch.no_grad():
        logp = policy.scores(batch, temperature=1.0).logp
    assert float((logp - batch.logp_mu)[batch.mask].abs().max()) < 0.05


@pytest.mark.parametrize(
    "prompts", [[7, 7, 2, 2], [2, 7, 2, 9, 7, 2], [9], [7, 2, 9]], ids=["equal groups", "mixed", "one left", "no group"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_dense_attention(prompts: list[int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    heads, shared_heads, size, width, own_width = 6, 2, 8, 11, 5

    def states(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, shared_heads, columns, size, generator=generator).to(dtype)

    numbers, paddings = [7, 2, 9], torch.tensor([0, 4, 9])
    held, seen = (states(3, width), states(3, width)), torch.arange(width) >= paddings[:, None]
    layer = BufferedLayer()
    layer.update(*held)
    shared = SharedPrompts()
    shared.append(numbers, seen, SimpleNamespace(layers=[layer]))
    shared.arrange(prompts)
    assert shared.numbers == [number for number in numbers if number in prompts]
    rows, of = len(prompts), torch.tensor([numbers.index(number) for number in prompts])
    key, value, query = states(rows, own_width), states(rows, own_width), torch.randn(rows, heads, 1, size).to(dtype)
    own_seen = torch.arange(own_width) >= torch.arange(rows)[:, None].clamp(max=own_width - 1)
    found = shared.attention(own_seen)(query, key, value, 0.3, 0)
    keys, values = (
        torch.cat([a[of], b], 2).float().repeat_interleave(3, 1) for a, b in zip(held, (key, value), strict=True)
    )
    mask = torch.cat([seen[of], own_seen], 1)[:, None, None]
    dense = torch.nn.functional.scaled_dot_product_attention(query.float(), keys, values, attn_mask=mask, scale=0.3)
    tolerance = 1e-6 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(found.float(), dense.transpose(1, 2), atol=tolerance, rtol=tolerance)


@pytest.mark.slow
def test_the_plan_of_the_longest_rows_is_what_generation_takes() -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=1024)
    policy.model.generation_config.eos_token_id = [-1]  # none ends before its last token
    items = [PromptItem((Message("user", "word " * 150 + str(number)),)) for number in range(2)]
    sampler = TransformersSampler(policy, Sampling(max_new_tokens=200, rows_at_once=16, max_prompt_tokens=1024))

    def peak(step: Callable[[Decoding], object]) -> int:
        decoding = sampler._decoding(items, 8, 3)
        return measured([policy.model], [], lambda: step(decoding)).bytes

    weights = sum(parameter.nbytes for parameter in policy.model.parameters())
    generated, planned = (peak(step) - weights for step in (lambda one: list(one.run()), Decoding.longest))
    assert generated <= planned * 1.02
    assert planned < 1.1 * generated
    assert peak(lambda one: one.longest(on_cpu=False)) - weights > 1.4 * generated
