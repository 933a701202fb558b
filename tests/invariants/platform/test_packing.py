"""The packed forward pass gives what padded rows give: hidden states, losses and gradients, whatever the groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import varlen

from assay.errors import BadInputError
from assay.models.attention import packed_attention
from assay.models.attention.packed_attention import (
    NAME,
    Layout,
    Segments,
    Span,
    by_block_mask,
    by_groups,
    by_segments,
    has_varlen,
    register,
)
from assay.models.attention.packing import (
    PACKED,
    TokenGroup,
    can_pack,
    common_prefix,
    forward,
    forward_rows,
    group_of,
)
from assay.models.heads import apply_head

VOCABULARY = 61
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LONG_WINDOW = {
    "mistral": {"sliding_window": 128},
    "phi3": {"sliding_window": 128, "original_max_position_embeddings": 256},
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {kind: {**SHAPE, **LONG_WINDOW.get(kind, {})} for kind in sorted(PACKED)}


def build(kind: str, *, head: str = "score", **changes: Any) -> Any:
    """A random model of two layers; `head`: score or language."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    config = AutoConfig.for_model(kind, **{**CONFIGURATIONS.get(kind, SHAPE), **changes}, num_labels=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        maker = AutoModelForSequenceClassification if head == "score" else AutoModelForCausalLM
        return maker.from_config(config, attn_implementation="sdpa").eval()  # type: ignore[no-untyped-call]


def random_groups(rng: np.random.Generator, shapes: list[tuple[int, list[int]]]) -> list[TokenGroup]:
    def tokens(count: int) -> Any:
        return rng.integers(3, VOCABULARY, count).astype(np.int32)

    return [TokenGroup(tokens(prefix), tuple(tokens(n) for n in branches)) for prefix, branches in shapes]


SHAPES: list[tuple[int, list[int]]] = [(9, [4, 7]), (0, [5, 3]), (6, [8]), (0, [1]), (1, [1, 1, 1, 12]), (20, [2, 2])]


def outcome(model: Any, run: Callable[..., Any], groups: list[TokenGroup]) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """The pass, its rewards, and the gradients of a loss over all of them."""
    model.zero_grad()
    hidden = run(model, groups)
    rewards = apply_head(model.score, hidden.last())
    loss = torch.nn.functional.softplus(-rewards * torch.arange(1, len(rewards) + 1)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return hidden, rewards.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], share: float) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=share * float(gradient.abs().max()) + 1e-9), name


@pytest.mark.parametrize("kind", sorted(PACKED))
def test_packed_is_padded_for_every_known_architecture(kind: str) -> None:
    model, groups = build(kind), random_groups(np.random.default_rng(0), SHAPES)
    assert can_pack(model, 26)
    rows, expected, gradients = outcome(model, forward_rows, groups)
    packed, rewards, found = outcome(model, forward, groups)
    assert model.config._attn_implementation == NAME
    assert torch.allclose(rewards, expected, atol=2e-6)
    assert_same_gradients(found, gradients, 2e-5)
    assert packed.padding == 0
    assert packed.computed == sum(group.computed for group in groups)
    assert rows.computed - rows.padding == sum(group.tokens for group in groups)
    for branch in range(len(packed)):
        assert torch.allclose(packed.branch_states(branch), rows.branch_states(branch), atol=1e-5)
        assert torch.allclose(packed.sequence_states(branch), rows.sequence_states(branch), atol=1e-5)
    # Places are counted from a sequence's beginning, in the shared part and after it.
    places = [
        sorted({0, len(states) // 2, len(states) - 1}) for states in map(packed.sequence_states, range(len(packed)))
    ]
    expected_states = torch.cat([packed.sequence_states(branch)[wanted] for branch, wanted in enumerate(places)])
    assert torch.equal(packed.at(places), expected_states)
    assert torch.allclose(rows.at(places), expected_states, atol=1e-5)


@settings(max_examples=25)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(1, 9), min_size=1, max_size=4)), max_size=5),
    seed=st.integers(0, 2**16),
)
def test_packed_is_padded_for_any_groups(shapes: list[tuple[int, list[int]]], seed: int) -> None:
    model = build("llama")
    groups = random_groups(np.random.default_rng(seed), [*shapes, (3, [2])])
    _, expected, gradients = outcome(model, forward_rows, groups)
    _, rewards, found = outcome(model, forward, groups)
    assert torch.allclose(rewards, expected, atol=2e-6)
    assert_same_gradients(found, gradients, 2e-5)


def test_a_shared_prefix_is_the_same_as_separate_sequences() -> None:
    model, groups = build("qwen3"), random_groups(np.random.default_rng(3), SHAPES)
    apart = [group_of([sequence]) for group in groups for sequence in group.sequences()]
    together, rewards, found = outcome(model, forward, groups)
    separate, expected, gradients = outcome(model, forward, apart)
    assert torch.allclose(rewards, expected, atol=2e-6)
    assert_same_gradients(found, gradients, 2e-5)
    assert together.computed < separate.computed == sum(group.tokens for group in groups)


def test_long_groups_have_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go through torch's own kernel, whose memory does not grow with the square of a sequence."""
    model, groups = build("qwen3"), random_groups(np.random.default_rng(3), SHAPES)
    _, expected, gradients = outcome(model, forward, groups)
    monkeypatch.setattr(packed_attention, "LONGEST", 8)
    _, rewards, found = outcome(model, forward, groups)
    assert torch.allclose(rewards, expected, atol=2e-6)
    assert_same_gradients(found, gradients, 2e-5)


def test_a_group_does_not_depend_on_its_neighbours() -> None:
    model, groups = build("qwen2"), random_groups(np.random.default_rng(4), SHAPES)
    with torch.no_grad():
        alone = torch.cat([forward(model, [group]).last() for group in groups])
        batch = forward(model, groups).last()
        turned = forward(model, groups[::-1]).last()
    assert torch.allclose(alone, batch, atol=1e-5)
    ends = np.cumsum([len(group.branches) for group in groups[::-1]])
    backwards = torch.cat(
        [turned[end - len(g.branches) : end] for g, end in zip(groups[::-1], ends, strict=True)][::-1]
    )
    assert torch.allclose(backwards, batch, atol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    model, groups = build("llama"), random_groups(np.random.default_rng(1), SHAPES)
    model.train()
    _, expected, gradients = outcome(model, forward, groups)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    _, rewards, found = outcome(model, forward, groups)
    assert torch.allclose(rewards, expected, atol=2e-6)  # the reentrant kind has no gradient at first: other kernels
    assert_same_gradients(found, gradients, 2e-5)


def test_under_bfloat16_it_is_as_far_from_float32_as_padded_rows_are() -> None:
    model, groups = build("llama"), random_groups(np.random.default_rng(1), SHAPES)
    _, exact, _ = outcome(model, forward, groups)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, rows, gradients = outcome(model, forward_rows, groups)
        _, packed, found = outcome(model, forward, groups)
    spread = float(exact.std())
    assert float((packed - exact).abs().max()) < 2 * float((rows - exact).abs().max()) + 0.02 * spread
    assert_same_gradients(found, gradients, 0.05)


def test_under_bfloat16_a_gradient_changes_no_bit() -> None:
    """So a policy that is its reference still has the log-probs of its reference."""
    model, groups = build("llama"), random_groups(np.random.default_rng(1), SHAPES)
    states = []
    for wanted in (True, False):
        with torch.set_grad_enabled(wanted), torch.autocast("cpu", torch.bfloat16):
            states.append(forward(model, groups).states.detach())
    assert torch.equal(*states)


def test_with_adapters() -> None:
    from peft import LoraConfig, TaskType, get_peft_model

    base = build("llama")
    wrapped = get_peft_model(base, LoraConfig(task_type=TaskType.SEQ_CLS, r=2, target_modules="all-linear"))
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))
    groups = random_groups(np.random.default_rng(2), SHAPES)
    with torch.no_grad():
        rows, packed = forward_rows(wrapped, groups), forward(wrapped, groups)
        with wrapped.disable_adapter():
            off = forward(wrapped, groups)
    assert torch.allclose(rows.last(), packed.last(), atol=1e-5)
    assert not torch.allclose(off.last(), packed.last(), atol=1e-3)


def test_a_language_model_predicts_every_token_of_every_branch() -> None:
    model = build("llama", head="language")
    groups = random_groups(np.random.default_rng(6), [(5, [3, 4]), (2, [1])])
    with torch.no_grad():
        logits = model.lm_head(forward(model, groups).before())
        expected = []
        for group in groups:
            for sequence in group.sequences():
                ids = torch.from_numpy(sequence).long()[None]
                expected.append(model(input_ids=ids).logits[0, len(group.prefix) - 1 : -1])
        assert torch.allclose(logits, torch.cat(expected), atol=1e-5)
        with pytest.raises(BadInputError, match="without a prefix"):
            forward(model, random_groups(np.random.default_rng(6), [(0, [3])])).before()


def test_a_packed_model_is_otherwise_what_it_was() -> None:
    """Generation and padded rows after a packed pass are those of the model under plain sdpa."""
    first, second = build("qwen2", head="language"), build("qwen2", head="language")
    forward(second, random_groups(np.random.default_rng(6), SHAPES))
    ids = torch.tensor([[0, 0, 5, 9, 11], [4, 8, 15, 16, 23]])
    seen = (ids > 0).long()
    options = {"attention_mask": seen, "max_new_tokens": 6, "do_sample": False}
    assert torch.equal(first.generate(ids, **options), second.generate(ids, **options))
    assert torch.equal(first(ids, attention_mask=seen).logits, second(ids, attention_mask=seen).logits)
    assert NAME not in str(second.config.to_dict())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("mistral", {"sliding_window": 8}),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}),
        ("gemma2", {"attn_logit_softcapping": 5.0}),
        ("mamba", {"state_size": 4, "num_heads": 4}),
    ],
)
def test_other_models_get_padded_rows(kind: str, changes: dict[str, Any]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **{**SHAPE, **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")  # type: ignore[no-untyped-call]
    model.eval()
    groups = random_groups(np.random.default_rng(0), SHAPES)
    assert not can_pack(model, 26)
    with torch.no_grad():
        hidden = forward(model, groups)
        for branch, sequence in enumerate(s for group in groups for s in group.sequences()):
            ids = torch.from_numpy(sequence).long()[None]
            alone = getattr(model, model.base_model_prefix)(input_ids=ids, use_cache=False).last_hidden_state[0]
            assert torch.allclose(hidden.sequence_states(branch), alone, atol=1e-5)
    assert hidden.padding > 0


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: Segments) -> torch.Tensor:
    """What a variable-length kernel with masks aligned to the last key computes, one segment at a time."""
    outs, at, key_at = [], 0, 0
    for n, m in zip(parts.q_lengths, parts.k_lengths, strict=True):
        keys = parts.keys[key_at : key_at + m]
        mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        outs.append(
            torch.nn.functional.scaled_dot_product_attention(q[:, :, at : at + n], k[:, :, keys], v[:, :, keys], mask)
        )
        at, key_at = at + n, key_at + m
    return torch.cat(outs, 2)


def test_all_ways_to_attend_agree() -> None:
    """A group at a time, by the fused kernel and by products (where a gradient is wanted); the segments given to
    variable-length kernels; FlexAttention's block mask."""
    spans, start = [], 0
    for prefix, branches in SHAPES:
        spans.append(Span(start, prefix, tuple(branches)))
        start += spans[-1].length
    layout = Layout(spans)
    q, k, v = (torch.randn(1, 2, start, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    groups = by_groups(q, k, v, layout)
    assert torch.allclose(groups, by_groups(q.requires_grad_(), k, v, layout), atol=1e-6)
    q = q.detach()
    assert torch.allclose(groups, by_hand(q, k, v, layout.segments), atol=1e-6)
    assert torch.allclose(groups, by_block_mask(q, k, v, layout), atol=1e-5)
    with torch.inference_mode():  # key heads that several query heads read: the kernel's own way, else repeated
        many = torch.cat([q, q + 1], 1)
        repeated = by_groups(many, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), layout)
        assert torch.allclose(by_groups(many, k, v, layout), repeated, atol=1e-6)
    q_ends, k_ends, keys = layout.on_device(torch.device("cpu"))
    assert q_ends[-1] == start
    assert k_ends[-1] == len(keys)


def varlen_of_torch_2_11(
    q: Any,
    k: Any,
    v: Any,
    q_ends: Any,
    k_ends: Any,
    max_q: int,
    max_k: int,
    *,
    scale: Any = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """By each sequence's own attention: [tokens, heads, width], as many key heads as query heads."""
    assert (window_size, k.shape[1]) == ((-1, 0), q.shape[1])
    outs = []
    for i in range(len(q_ends) - 1):
        own_q, own_k, own_v = q[q_ends[i] : q_ends[i + 1]], k[k_ends[i] : k_ends[i + 1]], v[k_ends[i] : k_ends[i + 1]]
        sees = torch.ones(len(own_q), len(own_k), dtype=torch.bool).tril(len(own_k) - len(own_q))
        one, two, three = (t.transpose(0, 1) for t in (own_q, own_k, own_v))
        out = F.scaled_dot_product_attention(one, two, three, sees, scale=scale)
        outs.append(out.transpose(0, 1))
    return torch.cat(outs)


def test_variable_length_kernels_of_older_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.11 has no grouped heads there, torch 2.10 no window: seen as a TypeError in the first step on a GPU."""
    layout = Layout([Span(0, 3, (2, 4)), Span(9, 0, (5,))])
    q, k, v = (torch.randn(1, heads, 14, 8, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    monkeypatch.setattr(varlen, "varlen_attn", varlen_of_torch_2_11)
    assert has_varlen()
    assert torch.allclose(by_segments(q, k, v, layout), by_groups(q, k, v, layout), atol=1e-6)
    monkeypatch.setattr(varlen, "varlen_attn", lambda query, key, value, is_causal=False: query)
    assert not has_varlen()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("key_heads", [4, 2])
def test_all_ways_to_attend_agree_on_a_gpu(key_heads: int) -> None:
    layout = Layout([Span(0, 30, (20, 40)), Span(90, 0, (50,))])
    shapes = (4, key_heads, key_heads)
    q, k, v = (torch.randn(1, n, 140, 64, device="cuda", dtype=torch.bfloat16) for n in shapes)
    exact = by_groups(q.float(), k.float(), v.float(), layout)
    ways = [by_segments(q, k, v, layout)] if has_varlen() else []
    for out in (*ways, by_block_mask(q, k, v, layout)):
        assert torch.allclose(out.float(), exact, atol=2e-2)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=5))
def test_group_of_keeps_the_sequences(sequences: list[list[int]]) -> None:
    group = group_of(sequences)
    assert [row.tolist() for row in group.sequences()] == sequences
    assert group.tokens == sum(map(len, sequences))
    assert group.computed == group.tokens - (len(sequences) - 1) * len(group.prefix)
    assert group.longest == max(map(len, sequences))
    if len(sequences) > 1:  # as much as can be: one more token is not common, or would leave a branch empty
        common = len(group.prefix)
        assert common == common_prefix([np.asarray(row, dtype=np.int32) for row in sequences])
        assert any(len(row) == common + 1 for row in sequences) or len({row[common] for row in sequences}) > 1


def test_empty_sequences_are_refused() -> None:
    empty: list[list[list[int]]] = [[], [[]], [[1], []]]
    for sequences in empty:
        with pytest.raises(BadInputError, match="at least one token"):
            group_of(sequences)
    with pytest.raises(BadInputError, match="at least one group"):
        forward(build("llama"), [])


def test_registering_twice_is_harmless() -> None:
    register()
    register()
