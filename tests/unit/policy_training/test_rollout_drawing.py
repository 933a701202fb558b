"""Drawing one token from logits, and the memory that keys and values of rows under generation lie in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from assay_policy_training.core.sampling import draw, min_p, prune, top_p_filter
from assay_policy_training.plugins.samplers.key_value_cache import ROOM, BufferedLayer, compacted


@pytest.mark.slow
def test_draws_follow_the_distribution() -> None:
    """100,000 draws from six tokens: shares within five standard errors, log-probs those of the softmax."""
    logits = torch.tensor([0.0, 1.0, -2.0, -torch.inf, 3.0, 0.5])
    expected = logits.softmax(-1)
    choice, logp = draw(logits.expand(100_000, 6), torch.rand(100_000, generator=torch.Generator().manual_seed(0)))
    share = torch.bincount(choice, minlength=6) / len(choice)
    assert float(share[3]) == 0.0
    error = (expected * (1 - expected) / len(choice)).sqrt()
    assert bool(((share - expected).abs() <= 5 * error).all())
    torch.testing.assert_close(logp, logits.log_softmax(-1)[choice])


def test_no_row_depends_on_another() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, uniform = torch.randn(5, 11, generator=generator), torch.rand(5, generator=generator)
    one, _ = draw(logits, uniform)
    other, _ = draw(torch.cat([logits[:3], torch.zeros(2, 11)]), torch.cat([uniform[:3], torch.zeros(2)]))
    assert torch.equal(one[:3], other[:3])


@given(st.integers(1, 400), st.integers(0, 10_000), st.floats(0.01, 30.0))
def test_what_is_cut_is_never_drawn(tokens: int, seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, tokens, generator=generator) * spread
    kept = top_p_filter(prune(logits, -3.0), 0.7)
    choice, logp = draw(kept, torch.rand(8, generator=generator))
    assert bool(kept.gather(1, choice[:, None]).isfinite().all())
    torch.testing.assert_close(logp, kept.log_softmax(-1).gather(1, choice[:, None]).squeeze(1), atol=1e-5, rtol=1e-5)


def test_min_p_is_the_same_cut() -> None:
    logits = torch.tensor([[0.0, -1.9, -2.1, -5.0]])
    share = logits.softmax(-1)
    assert torch.equal(prune(logits, -2.0).isfinite(), share >= min_p(-2.0) * share.amax())
    assert min_p(None) == 0.0


def states(rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2, columns, 4, generator=generator), torch.randn(rows, 2, columns, 3, generator=generator)


def test_buffered_layers_hold_what_transformers_own_hold() -> None:
    """Read a prompt, copy it to a group, append one column at a time past the allocated room, drop rows under way."""
    own: Any = DynamicLayer()  # type: ignore[no-untyped-call]
    ours: Any = BufferedLayer()
    for layer in (own, ours):
        layer.update(*states(3, 5, 0))
        layer.batch_repeat_interleave(2)
    rows = 6
    for column in range(ROOM + 10):
        for layer in (own, ours):
            layer.update(*states(rows, 1, column + 1))
        if column in (3, 4, ROOM - 5, ROOM + 8):
            order, rows = torch.tensor(compacted([row != column % rows for row in range(rows)])), rows - 1
            for layer in (own, ours):
                layer.batch_select_indices(order)
    assert rows == 2
    assert ours.get_seq_length() == own.get_seq_length() == ROOM + 15
    assert torch.equal(ours.keys, own.keys)
    assert torch.equal(ours.values, own.values)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_rows_that_stay_move_as_little_as_they_can(going: list[bool]) -> None:
    order = compacted(going)
    assert sorted(order) == [row for row, on in enumerate(going) if on]
    assert all(order[row] == row for row in range(len(order)) if going[row])


@pytest.mark.parametrize("log_ratio", [0.0, 1.0])
def test_a_cut_that_leaves_nothing_is_refused(log_ratio: float) -> None:
    from assay.errors import BadInputError
    from assay_policy_training.core.sampling import Sampling

    with pytest.raises(BadInputError, match="prune_log_ratio"):
        Sampling(prune_log_ratio=log_ratio)
