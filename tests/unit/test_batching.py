"""The plan of batches: complete, within the budget, deterministic, little padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_serving.batching import padded_share, plan_batches

LENGTHS = st.lists(st.integers(min_value=1, max_value=3000), max_size=200)
BUDGETS = st.integers(min_value=1, max_value=20_000)


@given(LENGTHS, BUDGETS)
def test_every_index_is_planned_exactly_once(lengths: list[int], budget: int) -> None:
    planned = [index for batch in plan_batches(lengths, budget) for index in batch]
    assert sorted(planned) == list(range(len(lengths)))


@given(LENGTHS, BUDGETS)
def test_no_batch_passes_the_budget_unless_one_row_does(lengths: list[int], budget: int) -> None:
    for batch in plan_batches(lengths, budget):
        assert batch
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


@given(LENGTHS, BUDGETS, st.integers(min_value=0, max_value=2000))
def test_padding_stays_within_its_allowance(lengths: list[int], budget: int, allowance: int) -> None:
    for batch in plan_batches(lengths, budget, padding_allowance=allowance):
        longest = max(lengths[i] for i in batch)
        assert sum(longest - lengths[i] for i in batch) <= allowance


@given(LENGTHS, BUDGETS)
def test_the_plan_is_deterministic_and_longest_first(lengths: list[int], budget: int) -> None:
    plan = plan_batches(lengths, budget)
    assert plan == plan_batches(list(lengths), budget)
    order = [(-lengths[i], i) for batch in plan for i in batch]
    assert order == sorted(order)


@given(LENGTHS, BUDGETS)
def test_padded_share_is_a_share(lengths: list[int], budget: int) -> None:
    share = padded_share(lengths, plan_batches(lengths, budget))
    assert 0.0 <= share < 1.0


def test_equal_lengths_fill_batches_without_padding() -> None:
    plan = plan_batches([10] * 7, 30)
    assert plan == [[0, 1, 2], [3, 4, 5], [6]]
    assert padded_share([10] * 7, plan) == 0.0


def test_padded_share_counts_padding() -> None:
    assert padded_share([10, 5], [[0, 1]]) == 0.25
    assert padded_share([], []) == 0.0


def test_a_budget_must_be_positive() -> None:
    with pytest.raises(BadInputError, match="token_budget"):
        plan_batches([1], 0)
