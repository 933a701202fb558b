"""The audit log is a chain of hashes: `assay doctor` names the first line that was changed, removed or cut off."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from annotating import cast, import_pairs, make, take
from web_pages import running_web, signed_in

from assay.doctor import Check, examine
from assay.system.hash_chain import check_audit_log
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.audit_log import record


def audit_check(workspace: Workspace) -> Check:
    (check,) = [check for check in examine(workspace) if check.name == "audit log"]
    return check


def chain(workspace: Workspace, lines: int) -> None:
    with AccessFile(workspace.root / FILE) as access:
        for n in range(lines):
            record(access, "ada", "cast_vote", f"queue {n}", detail={"ä": n}, address="127.0.0.1")


@pytest.mark.slow
def test_taking_an_item_writes_no_line_and_votes_do(workspace: Workspace) -> None:
    make(workspace, "round", import_pairs(workspace, 6))
    with running_web(workspace) as url, signed_in(url) as ada:
        item = take(ada, "round")["item"]
        path = "/api/annotate/queues/round"
        ada.post(f"{path}/renewal", json={"ticket": item["ticket"]}).raise_for_status()
        ada.post(f"{path}/release", json={"ticket": item["ticket"]}).raise_for_status()
        ada.post(f"{path}/conflict").raise_for_status()
        item = take(ada, "round")["item"]
        cast(ada, "round", item, "ada", choice="first").raise_for_status()
        ada.post(f"{path}/undo", json={"ticket": item["ticket"]}).raise_for_status()
        lines = ada.get("/api/audit").json()["lines"]
    assert [line["action"] for line in lines] == ["undo_vote", "cast_vote", "sign_in"]
    check = audit_check(workspace)
    assert (check.state, check.detail.split(",")[0]) == ("ok", "3 lines")
    assert lines[0]["hash"].startswith(check.detail.rpartition(" ")[2])


def test_lines_of_several_connections_are_one_chain(workspace: Workspace) -> None:
    with AccessFile(workspace.root / FILE):
        pass
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: chain(workspace, 25), range(4)))
    state = check_audit_log(workspace.root)
    assert state is not None
    assert (state.lines, state.broken) == (100, None)


@pytest.mark.parametrize(
    ("statement", "line", "reason"),
    [
        ("UPDATE audit SET person = 'eve' WHERE id = 4", 4, "changed"),
        pytest.param("UPDATE audit SET at = at + 1 WHERE id = 1", 1, "changed", marks=pytest.mark.slow),
        pytest.param("UPDATE audit SET detail = '{}', hash = '' WHERE id = 7", 7, "changed", marks=pytest.mark.slow),
        pytest.param("DELETE FROM audit WHERE id = 5", 6, "line 5 is missing", marks=pytest.mark.slow),
        ("DELETE FROM audit WHERE id BETWEEN 3 AND 5", 6, "lines from 3 are missing"),
        ("DELETE FROM audit WHERE id > 8", 9, "up to line 10"),
        pytest.param("DELETE FROM audit", 1, "up to line 10", marks=pytest.mark.slow),
        pytest.param("ALTER TABLE audit DROP COLUMN hash", 1, "its hashes are missing", marks=pytest.mark.slow),
        ("DROP TABLE audit", 1, "the whole log is missing"),
    ],
)
def test_doctor_names_the_first_broken_line(workspace: Workspace, statement: str, line: int, reason: str) -> None:
    chain(workspace, 10)
    assert audit_check(workspace).state == "ok"
    with sqlite3.connect(workspace.root / FILE) as db:
        db.execute(statement)
    check = audit_check(workspace)
    assert check.state == "problem"
    assert f"breaks at line {line}:" in check.detail
    assert reason in check.detail
    if "DROP" in statement:
        return
    chain(workspace, 2)  # what is written later mends nothing
    assert f"breaks at line {line}:" in audit_check(workspace).detail or reason == "up to line 10"
    assert audit_check(workspace).state == "problem"
