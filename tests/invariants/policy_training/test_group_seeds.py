"""A rollout follows from its group's seed: the same draw, split in any way, gives the same tokens."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message
from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds, row_uniforms
from assay_policy_training.plugins.samplers.carried import CarriedRow, continued, empty_row
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

ITEMS = tuple(PromptItem((Message("user", "word " * number + "?"),)) for number in (3, 1, 9, 2, 14, 5, 1))
SEEDS = tuple(group_seeds(7, len(ITEMS)))
SIZE, LONGEST = 3, 16


@pytest.fixture(scope="module")
def policy() -> Policy:
    """One whose rows end at different lengths."""
    made = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=128)
    made.model.generation_config.eos_token_id = list(range(0, 256, 9))
    return made


def drawn(policy: Policy, numbers: range | list[int], rows_at_once: int, size: int = SIZE) -> RolloutBatch:
    sampler = TransformersSampler(policy, Sampling(max_new_tokens=LONGEST, rows_at_once=rows_at_once))
    items, seeds = [ITEMS[n] for n in numbers], [SEEDS[n] for n in numbers]
    return sampler.rollout(items, size, seed=seeds, version=0)


@pytest.fixture(scope="module")
def whole(policy: Policy) -> RolloutBatch:
    return drawn(policy, range(len(ITEMS)), 64)


def own_tokens(batch: RolloutBatch) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(batch.tokens, batch.mask, strict=True)]


@pytest.mark.slow
@settings(max_examples=8, deadline=None, derandomize=True)
@given(cuts=st.sets(st.integers(1, len(ITEMS) - 1)), rows_at_once=st.integers(1, 24), backwards=st.booleans())
def test_a_draw_split_in_any_way_is_the_same(
    policy: Policy, whole: RolloutBatch, cuts: set[int], rows_at_once: int, backwards: bool
) -> None:
    bounds = [0, *sorted(cuts), len(ITEMS)]
    parts = [range(a, b) for a, b in itertools.pairwise(bounds)]
    batches = [drawn(policy, part, rows_at_once) for part in (reversed(parts) if backwards else parts)]
    joined = merge_batches(batches[::-1] if backwards else batches)
    assert own_tokens(joined) == own_tokens(whole)
    logps = [batch.logp_mu[batch.mask] for batch in (joined, whole)]
    torch.testing.assert_close(*logps, atol=1e-5, rtol=1e-5)
    assert len(set(whole.lengths.tolist())) > 3


def test_a_group_does_not_depend_on_its_size(policy: Policy, whole: RolloutBatch) -> None:
    smaller = own_tokens(drawn(policy, range(len(ITEMS)), 64, size=SIZE - 1))
    rows = [row for row in range(len(whole)) if row % SIZE < SIZE - 1]
    assert smaller == [own_tokens(whole)[row] for row in rows]


def test_groups_of_one_prompt_differ_and_their_rows_too(policy: Policy) -> None:
    sampler = TransformersSampler(policy, Sampling(max_new_tokens=LONGEST))
    rows = own_tokens(sampler.rollout([ITEMS[0], ITEMS[0]], SIZE, seed=[1, 2], version=0))
    assert len({tuple(row) for row in rows}) == 2 * SIZE


@settings(max_examples=25, deadline=None, derandomize=True)
@given(start=st.integers(0, 40), count=st.integers(0, 40), index=st.integers(0, 9))
def test_random_numbers_of_a_row_continue(start: int, count: int, index: int) -> None:
    end = start + count
    assert torch.equal(row_uniforms(3, index, start, end), row_uniforms(3, index, 0, 100)[start:end])


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_interrupted_anywhere_and_regrouped_are_the_same(
    policy: Policy, whole: RolloutBatch, data: st.DataObject
) -> None:
    """Each turn some rows go on by a window, beside any others."""
    sampler = TransformersSampler(policy, Sampling(max_new_tokens=LONGEST))
    rows = [empty_row(f"{n}", item, SEEDS[n], index) for n, item in enumerate(ITEMS[:4]) for index in range(SIZE)]
    ended: dict[tuple[str, int], CarriedRow] = {}
    while rows:
        number = data.draw(st.integers(1, len(rows)))
        rows = [*rows[number:], *continued(sampler, rows[:number], data.draw(st.integers(1, LONGEST)), version=0)]
        ended |= {(row.uid, row.index): row for row in rows if row.ended(policy, LONGEST)}
        rows = [row for row in rows if not row.ended(policy, LONGEST)]
    tokens = [ended[f"{n}", index].tokens.tolist() for n in range(4) for index in range(SIZE)]
    assert tokens == own_tokens(whole)[: 4 * SIZE]
