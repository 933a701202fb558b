"""Passwords and attempts to sign in: what ships, at its own cost, and the limits by the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError, RateLimitError
from assay_web.access.attempts import MOST_KEPT, Attempts, SignInLimits, network_of
from assay_web.access.passwords import PasswordCost, Passwords, check_new_password
from assay_web.server.settings import WebSettings

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_ships_is_the_second_choice_of_rfc_9106() -> None:
    passwords = Passwords(WebSettings().password_cost)
    kept = passwords.hashed("correct horse")
    assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert passwords.fits(kept, "correct horse")
    assert not passwords.fits(kept, "correct hors")
    assert not passwords.outdated(kept)
    assert Passwords(CHEAP).outdated(kept)


def test_nobody_has_a_password() -> None:
    passwords = Passwords(CHEAP)
    assert not passwords.fits(None, "nobody's password")
    assert not passwords.fits("not a hash", "x")


def test_a_password_is_the_same_however_it_was_typed() -> None:
    passwords = Passwords(CHEAP)
    assert passwords.fits(passwords.hashed("caf\u00e9 au lait"), "cafe\u0301 au lait")


@pytest.mark.parametrize(
    ("name", "password", "said"),
    [
        ("ada", "short", "10 characters"),
        ("ada", "x" * 1001, "at most 1000"),
        ("grace hopper", "Grace Hopper1", "beside the name"),
        ("ada", "aaaaaaaaaaaaaaaa", "different characters"),
        ("ada", "canada dry 1", None),
        ("grace", "correct horse", None),
    ],
)
def test_passwords_that_are_taken(name: str, password: str, said: str | None) -> None:
    if said is None:
        check_new_password(name, password)
        return
    with pytest.raises(BadInputError, match=said):
        check_new_password(name, password)


def test_failures_refill_evenly() -> None:
    clock = Clock()
    attempts = Attempts(SignInLimits(by_account=3, by_address=100, refill_s=90.0), clock=clock)
    for _ in range(3):
        attempts.take("ada", "192.0.2.1")
    with pytest.raises(RateLimitError) as refused:
        attempts.take(" ADA ", "192.0.2.2")  # the same account from elsewhere
    assert refused.value.retry_after == pytest.approx(30.0)
    attempts.take("grace", "192.0.2.1")
    clock.now += 29.0
    with pytest.raises(RateLimitError):
        attempts.take("ada", "192.0.2.1")
    clock.now += 1.0
    attempts.take("ada", "192.0.2.1")
    clock.now += 1000.0
    for _ in range(3):
        attempts.take("ada", "192.0.2.1")
    attempts.give_back("ada", "192.0.2.1")
    attempts.take("ada", "192.0.2.1")


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 200)), max_size=60))
def test_no_account_gets_more_than_its_rate(moves: list[tuple[str, float]]) -> None:
    clock = Clock()
    attempts = Attempts(SignInLimits(by_account=4, by_address=1000, refill_s=100.0), clock=clock)
    begun, let_in = clock.now, {"a": 0, "b": 0}
    for name, pause in moves:
        clock.now += pause
        try:
            attempts.take(name, "192.0.2.1")
        except RateLimitError:
            continue
        let_in[name] += 1
        assert let_in[name] <= 4 + 4 * (clock.now - begun) / 100.0 + 1e-6


def test_the_buckets_stay_few() -> None:
    clock = Clock()
    attempts = Attempts(SignInLimits(by_account=2, by_address=10**6), clock=clock)
    for _ in range(2):
        attempts.take("ada", "192.0.2.1")
    for number in range(MOST_KEPT + 10):
        attempts.take(f"name {number}", "192.0.2.1")
    assert len(attempts._used) <= MOST_KEPT
    with pytest.raises(RateLimitError):  # the fullest are kept
        attempts.take("ada", "192.0.2.1")


def test_an_address_is_a_household() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::"
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("somewhere") == "somewhere"
