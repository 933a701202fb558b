"""Passwords and attempts to sign in: what ships, at its own cost, and the limits by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError, RateLimitError
from assay_web.accounts import attempts as attempts_module
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.attempts import KNOWN_S, SignInAttempts, network_of
from assay_web.accounts.passwords import Passwords, check_new_password
from assay_web.settings import PasswordCost, SignInLimits, WebSettings

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_ships_is_the_second_choice_of_rfc_9106() -> None:
    passwords = Passwords(WebSettings().password_cost)
    kept = passwords.hashed("correct horse")
    assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert passwords.verify(kept, "correct horse")
    assert not passwords.verify(kept, "correct hors")
    assert not passwords.needs_rehash(kept)
    assert Passwords(CHEAP).needs_rehash(kept)


def test_nobody_has_a_password() -> None:
    passwords = Passwords(CHEAP)
    assert not passwords.verify(None, "nobody's password")
    assert not passwords.verify("not a hash", "x")


def test_a_password_is_the_same_however_it_was_typed() -> None:
    passwords = Passwords(CHEAP)
    assert passwords.verify(passwords.hashed("caf\u00e9 au lait"), "cafe\u0301 au lait")


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


@pytest.fixture
def access(tmp_path: Path) -> Iterator[AccessFile]:
    with AccessFile(tmp_path / FILE) as file:
        yield file


HOME, AWAY = "192.0.2.1", "198.51.100.7"


def test_failures_refill_evenly(access: AccessFile) -> None:
    clock = Clock()
    attempts = SignInAttempts(access, SignInLimits(by_pair=3, by_address=100, refill_s=90.0), clock=clock)
    for _ in range(3):
        attempts.take("ada", HOME)
    with pytest.raises(RateLimitError) as refused:
        attempts.take(" ADA ", HOME)
    assert refused.value.retry_after == pytest.approx(30.0)
    attempts.take("grace", HOME)
    clock.now += 29.0
    with pytest.raises(RateLimitError):
        attempts.take("ada", HOME)
    clock.now += 1.0
    attempts.take("ada", HOME)
    clock.now += 1000.0
    for _ in range(3):
        attempts.take("ada", HOME)
    attempts.give_back("ada", HOME)
    attempts.take("ada", HOME)


def test_a_restart_and_a_second_server_forget_nothing_and_the_file_holds_no_name(access: AccessFile) -> None:
    clock, limits = Clock(), SignInLimits(by_pair=3)
    for _ in range(3):
        SignInAttempts(access, limits, clock=clock).take("hunter2 in the wrong field", HOME)
    with AccessFile(access.path) as again, pytest.raises(RateLimitError):
        SignInAttempts(again, limits, clock=clock).take("hunter2 in the wrong field", HOME)
    with access.reading() as db:
        kept = [row["key"] for row in db.execute("SELECT key FROM attempts")]
    assert {len(key) for key in kept if key.startswith("account")} == {len("account ") + 4}
    assert "hunter2" not in " ".join(kept)


def test_a_stranger_who_knows_a_name_keeps_its_owner_from_nothing(access: AccessFile) -> None:
    """From one address or from a hundred; whoever comes from a new one waits with them."""
    clock = Clock()
    attempts = SignInAttempts(access, SignInLimits(), clock=clock)
    attempts.take("Ada", HOME)
    attempts.give_back("Ada", HOME)
    for _ in range(10):
        attempts.take("ada", AWAY)
    with pytest.raises(RateLimitError) as refused:
        attempts.take("ada", AWAY)
    assert refused.value.retry_after == pytest.approx(90.0)
    attempts.take("ada", "203.0.113.5")  # nobody else waits
    for number in range(89):
        attempts.take("ada", f"198.18.0.{number}")
    with pytest.raises(RateLimitError) as refused:
        attempts.take("ada", "203.0.113.6")
    assert refused.value.retry_after == pytest.approx(36.0)
    for _ in range(10):
        attempts.take("ada", HOME)
    with pytest.raises(RateLimitError):
        attempts.take("ada", HOME)  # its own limit it has, too
    clock.now += KNOWN_S + 3600.0
    for number in range(100):
        attempts.take("ada", f"198.18.0.{number}")
    with pytest.raises(RateLimitError):
        attempts.take("ada", HOME)  # not known any more


def test_a_clock_that_is_set_back_locks_nobody_out(access: AccessFile) -> None:
    clock = Clock()
    attempts = SignInAttempts(access, SignInLimits(by_pair=1), clock=clock)
    attempts.take("ada", HOME)
    clock.now -= 0.5
    with pytest.raises(RateLimitError):
        attempts.take("ada", HOME)
    clock.now -= 500.0
    attempts.take("ada", HOME)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 200)), max_size=60))
def test_no_account_gets_more_than_its_rate(access: AccessFile, moves: list[tuple[str, float]]) -> None:
    clock = Clock()
    with access.writing() as db:
        db.execute("DELETE FROM attempts")
    limits = SignInLimits(by_pair=1000, by_address=1000, by_account=4, account_refill_s=100.0)
    attempts = SignInAttempts(access, limits, clock=clock)
    begun, let_in = clock.now, {"a": 0, "b": 0}
    for number, (name, pause) in enumerate(moves):
        clock.now += pause
        try:
            attempts.take(name, f"192.0.2.{number}")
        except RateLimitError:
            continue
        let_in[name] += 1
        assert let_in[name] <= 4 + 4 * (clock.now - begun) / 100.0 + 1e-6


def test_the_buckets_stay_few(access: AccessFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "MOST_KEPT", 200)
    clock = Clock()
    attempts = SignInAttempts(access, SignInLimits(by_pair=2, by_address=10**6), clock=clock)
    for _ in range(2):
        attempts.take("ada", HOME)
    for number in range(300):
        attempts.take(f"name {number}", HOME)
    with access.reading() as db:
        assert db.execute("SELECT count(*) FROM attempts").fetchone()[0] <= 200
    with pytest.raises(RateLimitError):  # the fullest are kept
        attempts.take("ada", HOME)
    clock.now += 3601.0
    attempts.take("ada", HOME)
    with access.reading() as db:
        assert db.execute("SELECT count(*) FROM attempts").fetchone()[0] == 3


def test_an_address_is_a_household() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::"
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("somewhere") == "somewhere"
