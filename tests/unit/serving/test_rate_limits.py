"""Rate limits by key: what a bucket lets through, what a refusal costs, what is given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from assay.errors import BadInputError, BusyError, RateLimitError
from assay_serving.server.auth.api_keys import RateLimits
from assay_serving.server.core.scoring_backend import Client


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def refused(limits: RateLimits, client: Client, items: int) -> float:
    """Seconds after which the refusal says to come back."""
    with pytest.raises(RateLimitError) as error:
        limits.reserve(client, items)
    assert error.value.retry_after is not None
    return error.value.retry_after


def test_a_minutes_worth_at_once_then_evenly() -> None:
    clock = Clock()
    limits, client = RateLimits(clock=clock), Client("a", requests_per_minute=60)
    for _ in range(60):
        limits.reserve(client, 5)
    assert refused(limits, client, 5) == pytest.approx(1.0)
    clock.now += 1.0
    limits.reserve(client, 5)
    refused(limits, client, 5)
    clock.now += 3600
    for _ in range(60):
        limits.reserve(client, 5)
    refused(limits, client, 5)


def test_a_refusal_uses_nothing_up() -> None:
    clock = Clock()
    limits, client = RateLimits(clock=clock), Client("a", requests_per_minute=2, items_per_minute=100)
    limits.reserve(client, 90)
    for _ in range(10):
        refused(limits, client, 20)  # of items; must not cost requests
    limits.reserve(client, 10)
    refused(limits, client, 0)


def test_keys_do_not_share_and_no_limit_is_none() -> None:
    limits = RateLimits(clock=Clock())
    limits.reserve(Client("a", 1), 1)
    refused(limits, Client("a", 1), 1)
    limits.reserve(Client("b", 1), 1)
    for _ in range(1000):
        limits.reserve(Client(), 1000)


def test_more_items_than_a_minute_gives_can_never_pass() -> None:
    limits = RateLimits(clock=Clock())
    with pytest.raises(BadInputError, match="101 items in one request; the key a may score 100 a minute"):
        limits.reserve(Client("a", 10, 100), 101)
    limits.reserve(Client("a", 10, 100), 100)


def test_less_than_one_a_minute_is_one_at_a_time() -> None:
    clock = Clock()
    limits, client = RateLimits(clock=clock), Client("a", requests_per_minute=0.5)
    limits.reserve(client, 1)
    assert refused(limits, client, 1) == pytest.approx(120)
    clock.now += 119
    refused(limits, client, 1)
    clock.now += 1
    limits.reserve(client, 1)


def test_what_was_not_accepted_is_given_back_and_no_more() -> None:
    limits, client = RateLimits(clock=Clock()), Client("a", 2, 10)
    limits.reserve(client, 10)
    limits.refund(client, 10)
    limits.refund(client, 10)
    limits.reserve(client, 10)
    refused(limits, client, 1)


def test_a_request_that_meets_a_full_queue_costs_nothing() -> None:
    limits, client = RateLimits(clock=Clock()), Client("a", 2, 10)
    with pytest.raises(BusyError), limits.reserved(client, 10):
        raise BusyError("the queue is full")
    with pytest.raises(ValueError, match="broken"), limits.reserved(client, 10):
        raise ValueError("broken")  # work was done for it
    refused(limits, client, 1)


def test_a_key_with_a_new_limit_keeps_what_it_used() -> None:
    limits = RateLimits(clock=Clock())
    for _ in range(8):
        limits.reserve(Client("a", 10), 1)
    refused(limits, Client("a", 4), 1)
    for _ in range(12):
        limits.reserve(Client("a", 20), 1)
    refused(limits, Client("a", 20), 1)


def test_counts_are_by_the_name_of_the_key() -> None:
    registry = CollectorRegistry()
    limits = RateLimits(registry, clock=Clock())
    limits.reserve(Client("a", 1), 7)
    refused(limits, Client("a", 1), 7)
    text = generate_latest(registry).decode()
    for line in (
        'assay_client_requests_total{client="a"} 1.0',
        'assay_client_items_total{client="a"} 7.0',
        'assay_client_refused_total{client="a"} 1.0',
    ):
        assert line in text


@given(
    rate=st.floats(0.1, 1000),
    steps=st.lists(st.tuples(st.floats(0, 90), st.integers(0, 50)), min_size=1, max_size=60),
)
def test_no_span_gets_more_than_the_rate_and_waiting_as_told_is_enough(
    rate: float, steps: list[tuple[float, int]]
) -> None:
    clock = Clock()
    limits, client = RateLimits(clock=clock), Client("a", items_per_minute=rate)
    most = max(rate, 1.0)
    passed: list[tuple[float, int]] = []
    for pause, items in steps:
        clock.now += pause
        try:
            limits.reserve(client, items)
        except BadInputError:
            assert items > most
            continue
        except RateLimitError as error:
            clock.now += error.retry_after or 0.0
            limits.reserve(client, items)
        passed.append((clock.now, items))
    for start in range(len(passed)):
        for stop in range(start, len(passed)):
            span = passed[stop][0] - passed[start][0]
            assert sum(items for _, items in passed[start : stop + 1]) <= most + rate * span / 60 + 1e-6
