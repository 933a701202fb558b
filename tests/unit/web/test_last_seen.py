"""When an account was last seen: kept when its sessions end, in whichever way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import add_account, change_account, list_accounts, set_password
from assay_web.accounts.passwords import Passwords
from assay_web.accounts.sessions import begin_session, end_session
from assay_web.settings import PasswordCost, WebSettings

SETTINGS = WebSettings()
PASSWORD = "a quiet place by the river"
AGO = 1000.0  #: seconds since ben was last seen


@pytest.fixture
def passwords() -> Passwords:
    return Passwords(PasswordCost(passes=1, memory_kib=64, lanes=1))


@pytest.fixture
def access(tmp_path: Path, passwords: Passwords) -> AccessFile:
    access = AccessFile(tmp_path / "access.sqlite")
    for name in ("ada", "ben"):
        add_account(access, passwords, name, "admin", PASSWORD, by="test")
    return access


def seen(access: AccessFile, name: str) -> float | None:
    return next(account.seen_at for account in list_accounts(access) if account.name == name)


@pytest.mark.parametrize("ending", ["signed out", "idle", "disabled", "new password"])
def test_the_last_time_outlives_the_session(access: AccessFile, passwords: Passwords, ending: str) -> None:
    assert seen(access, "ben") is None
    token = begin_session(access, "ben", None, SETTINGS)
    ago = 2 * SETTINGS.session_idle_s if ending == "idle" else AGO
    then = time.time() - ago
    with access.writing() as db:
        db.execute("UPDATE sessions SET seen_at = ?", (then,))
    if ending == "signed out":
        end_session(access, token)
    elif ending == "idle":
        begin_session(access, "ada", None, SETTINGS)  # which forgets those that have ended
    elif ending == "disabled":
        change_account(access, "ben", disabled=True)
    else:
        set_password(access, passwords, "ben", PASSWORD + "!")
    with access.reading() as db:
        assert db.execute("SELECT count(*) FROM sessions WHERE name = 'ben'").fetchone()[0] == 0
    assert seen(access, "ben") == then
    if ending != "disabled":
        older, now = begin_session(access, "ben", None, SETTINGS), seen(access, "ben")
        assert now is not None
        assert now > then
        with access.writing() as db:
            db.execute("UPDATE sessions SET seen_at = ? WHERE name = 'ben'", (then - 60,))
        end_session(access, older)
        assert seen(access, "ben") == then, "an older session that ends later says nothing new"


def test_somebody_without_an_account_is_not_taken_for_one_of_that_name(access: AccessFile) -> None:
    end_session(access, begin_session(access, "ada", "admin", SETTINGS))
    assert seen(access, "ada") is None
