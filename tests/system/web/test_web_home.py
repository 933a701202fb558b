"""Where people begin: how far a workspace is, for whom, and while its store is held."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from web_pages import running_web, signed_in

from assay.cli.main import main
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import Role, add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"


def assay(workspace: Workspace, *arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "-w", str(workspace.root)])
    assert ended.value.code == 0, arguments


@pytest.fixture
def workspace(empty_workspace: Path, tmp_path: Path) -> Workspace:
    return Workspace.open(shutil.copytree(empty_workspace, tmp_path / "workspace"))


def test_figures_follow_the_work_and_survive_a_held_store(workspace: Workspace, tmp_path: Path) -> None:
    with running_web(workspace, store_wait_s=0.2) as url, signed_in(url) as client:
        first = client.get("/api/home").json()
        assert (first["held"], first["figures"]["comparisons"], first["figures"]["newest_set"]) == (None, 0, None)
        rows = [{"prompt": f"What is {n} + {n}?", "chosen": f"{2 * n}", "rejected": f"{n}"} for n in range(1, 41)]
        rows.append({"prompt": "Same?", "chosen": "x", "rejected": "x"})
        (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assay(workspace, "data", "import", tmp_path / "sums.jsonl")
        assay(workspace, "data", "clean")
        assay(workspace, "data", "snapshot", "sums", "--holdout", 0.25)
        assay(workspace, "queue", "create", "first", "--limit", 5)
        figures = client.get("/api/home").json()["figures"]
        expected = {"comparisons": 40, "sources": 1, "rejected": 1, "cleaned": 1, "deduplicated": 0, "queues": 1}
        expected |= {"training_sets": 2, "votes": 0, "reward_models": 0, "policies": 0}
        assert {name: figures[name] for name in expected} == expected
        assert (figures["newest_set"], figures["newest_held_out"]) == ("sums", "sums-holdout")
        hold = "import duckdb, sys; db = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.readline()"
        command = [sys.executable, "-c", hold, str(workspace.store.path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            busy = client.get("/api/home").json()
            holder.communicate("let go\n")
        assert busy["figures"] == figures
        assert busy["held"] is not None


def test_who_may_see_it(workspace: Workspace) -> None:
    access = AccessFile(workspace.root / FILE)
    roles: tuple[Role, ...] = ("viewer", "annotator", "curator")
    for role in roles:
        add_account(access, Passwords(CHEAP), role, role, PASSWORD, by="test")
    access.close()
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        for name, status in (("viewer", 200), ("annotator", 403), ("curator", 200)):
            with signed_in(url, name, PASSWORD) as client:
                assert client.get("/api/home").status_code == status


@pytest.mark.slow
def test_the_sample_is_imported_and_survives_cleaning(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "sample.jsonl"
    for status in (0, 2):  # a file that is there is not overwritten
        with pytest.raises(SystemExit) as ended:
            main(["demo", "--quick", "--data", str(file)])
        assert ended.value.code == status
    assay(workspace, "data", "import", file)
    assay(workspace, "data", "clean")
    with workspace.store.unit() as db:
        counts = db.execute("SELECT pool, count(*) FROM pools GROUP BY pool").fetchall()
    assert [pool for pool, _ in counts] == ["unverified"]
    assert counts[0][1] > 40


def test_asking_for_the_plan_of_a_method_without_one_trains_nothing(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "pair.jsonl").write_text(json.dumps({"prompt": "2+2?", "chosen": "4", "rejected": "5"}))
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "plan",
                "train",
                "probe",
                "--data",
                str(tmp_path / "pair.jsonl"),
                "--base",
                "tiny",
                "-w",
                str(workspace.root),
            ]
        )
    assert ended.value.code == 2
    assert list(workspace.runs.iterdir()) == []
