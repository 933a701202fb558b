"""The plans of batches and of groups: complete, within the budget, deterministic, little padding, much shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.models.attention.packing import group_of
from assay_serving.engines.batching import plan_batches, plan_groups

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


def test_equal_lengths_fill_batches_without_padding() -> None:
    plan = plan_batches([10] * 7, 30)
    assert plan == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_budget_must_be_positive() -> None:
    with pytest.raises(BadInputError, match="token_budget"):
        plan_batches([1], 0)


def rows_of(prompts: list[int], *, prefix: int = 40) -> list[list[int]]:
    """Rows whose first `prefix` tokens say which prompt they answer."""
    return [[1000 + prompt] * prefix + [number] * (3 + number % 5) for number, prompt in enumerate(prompts)]


ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=60), max_size=20)


@given(ROWS, st.integers(1, 300))
def test_every_row_is_in_one_group_and_passes_keep_the_budget(rows: list[list[int]], budget: int) -> None:
    plan = plan_groups(rows, budget)
    assert sorted(i for groups in plan for group in groups for i in group) == list(range(len(rows)))
    assert plan == plan_groups([list(row) for row in rows], budget)
    for groups in plan:
        cost = sum(group_of([rows[i] for i in group]).computed for group in groups)
        assert cost <= budget or len(groups) == len(groups[0]) == 1


@given(st.lists(st.integers(0, 3), max_size=30))
def test_rows_of_one_prompt_are_found_wherever_they_stand(prompts: list[int]) -> None:
    rows = rows_of(prompts)
    groups = [group for groups in plan_groups(rows, 1 << 20) for group in groups]
    assert sorted(groups) == sorted(
        [i for i, other in enumerate(prompts) if other == prompt] for prompt in sorted(set(prompts))
    )


def test_a_header_that_all_share_does_not_break_up_the_groups() -> None:
    rows = [[7] * 30 + row for row in rows_of([0, 1, 0, 1, 0])]
    assert sorted(plan_groups(rows, 1 << 20)[0]) == [[0, 2, 4], [1, 3]]
    apart = [[7] * 30 + [number] * 50 for number in range(4)]
    assert plan_groups(apart, 1 << 20) == [[[0, 1, 2, 3]]]
    assert plan_groups([row[25:] for row in apart], 1 << 20) == [[[0], [1], [2], [3]]]  # 5 tokens are not worth it


def test_a_group_beyond_the_budget_is_cut() -> None:
    plan = plan_groups(rows_of([0] * 20), 70)
    assert len(plan) > 1
    assert all(len(groups) == 1 for groups in plan)


@given(ROWS, st.integers(1, 300), st.integers(1, 300))
def test_preferred_passes_keep_the_budget_and_every_row(rows: list[list[int]], budget: int, preferred: int) -> None:
    plan = plan_groups(rows, budget, preferred=preferred)
    assert sorted(i for groups in plan for group in groups for i in group) == list(range(len(rows)))
    for groups in plan:
        parts = [group_of([rows[i] for i in group]) for group in groups]
        cost = sum(part.computed for part in parts)
        assert cost <= budget or len(groups) == len(groups[0]) == 1
        if cost > preferred:  # only a group that would compute much again, or a single long row
            assert len(parts) == 1
            assert len(groups[0]) == 1 or 10 * len(parts[0].prefix) >= preferred


def test_a_group_is_cut_for_smaller_passes_where_its_beginning_is_cheap() -> None:
    assert [len(groups[0]) for groups in plan_groups(rows_of([0] * 200), 10_000, preferred=500)] != [200]
    assert plan_groups(rows_of([0] * 200), 10_000, preferred=400) == [[list(range(200))]]  # 40 of 400 is a tenth
