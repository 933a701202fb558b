"""Budgets: whatever order attempts begin and end in, no limit is passed, and nothing stops that still fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_pipelines.llm.budget import Budget, Reservation, Spending, spending_of

# each step: attempts in flight end (the share of their tokens they took), then one begins that may take so many tokens
steps = st.lists(st.tuples(st.integers(1, 50), st.lists(st.floats(0, 1), max_size=4)), max_size=40)


@given(steps, st.integers(0, 300), st.integers(0, 20))
def test_no_limit_is_passed_by_attempts_in_flight(plan: list[tuple[int, list[float]]], tokens: int, calls: int) -> None:
    spending = Spending(Budget(calls=calls, tokens=tokens, cost=tokens / 100))
    flying: list[Reservation] = []
    for wanted, ends in plan:
        for share in ends:
            if flying:
                done = flying.pop(0)
                used = int(done.tokens * share)
                spending.settle(done, tokens_in=used, tokens_out=0, cost=used / 100)
        got = spending.reserve(wanted, wanted / 100)
        spent = spending.tokens_in + spending.tokens_out
        if isinstance(got, Reservation):
            flying.append(got)
        elif got is None:  # only what is in flight stands in the way
            assert flying
            assert spent + wanted <= tokens
        else:
            assert got.startswith("budget of")
            assert spending.calls == calls or spent + wanted > tokens or (spent + wanted) / 100 > tokens / 100 - 1e-9
        assert spent + sum(r.tokens for r in flying) <= tokens
        assert spending.calls <= calls


@given(st.integers(0, 20), st.lists(st.integers(0, 8), max_size=8))
def test_questions_are_given_out_once(limit: int, wanted: list[int]) -> None:
    spending = Spending(Budget(questions=limit))
    assert sum(spending.take_questions(number) for number in wanted) == min(limit, sum(wanted))


def test_a_spending_is_shared_and_a_budget_is_new() -> None:
    shared = Spending(Budget(calls=1))
    assert spending_of(shared) is shared
    assert spending_of(None).budget == Budget()
    assert spending_of(Budget(calls=3)).budget.calls == 3


@pytest.mark.parametrize("wrong", [{"calls": -1}, {"cost": float("nan")}, {"tokens": -5}])
def test_a_budget_below_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInputError, match="budget"):
        Budget(**wrong)  # type: ignore[arg-type]
