"""Killed, out of disk, run again: nothing is half-written, and the second run ends where one run would have."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.store.integrity import dangling
from assay.workspace import Workspace
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

ROWS = 4000
BATCH = 250
#: Everything but run ids and times.
TABLES = {
    "prompts": "prompt_id, messages",
    "responses": "response_id, prompt_id, content",
    "comparisons": "comparison_id, prompt_id, response_a, response_b",
    "origins": "comparison_id, source, record_id, category, meta",
    "annotators": "annotator_id, kind, name, config",
    "judgments": "judgment_id, comparison_id, annotator_id, answer, strength, rationale",
    "rejects": 'file, "row", field, reason, raw',
}

IMPORT = f"""
import sys
import time
from assay.workspace import Workspace
from assay_pipelines.importers import rows, run
from assay_pipelines.importers.source import ImportConfig
rows.BATCH_PAIRS = {BATCH}
store_pairs, whole = run.store_pairs, int(sys.argv[3])


def held(*arguments):
    global whole
    counts = store_pairs(*arguments)
    if whole == 0:
        print("within a unit", flush=True)
        time.sleep(600)  # the test kills it here, before the commit
    whole -= 1
    return counts


run.store_pairs = held
workspace = Workspace.open(sys.argv[1])
run.run_import(workspace, run.open_import(workspace, ImportConfig(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    with path.open("w") as stream:
        for n in range(ROWS):
            row = {
                "prompt": f"question {n % 900}",
                "chosen": f"good {n} " + "x" * 200,
                "rejected": f"bad {n % 1500}" if n % 50 else "",
                "id": str(n),
                "rationale": f"because {n}",
            }
            stream.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    workspace = Workspace.create(tmp_path_factory.mktemp("uninterrupted"))
    run_import(workspace, open_import(workspace, ImportConfig(str(data))))
    return contents(workspace)


def contents(workspace: Workspace) -> dict[str, Any]:
    with workspace.store.unit() as db:
        return {
            table: db.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()
            for table, columns in TABLES.items()
        }


@pytest.mark.parametrize("units", [0, 1, 5])
def test_a_killed_import_completes_when_run_again(
    workspace: Workspace, data: Path, expected: dict[str, Any], units: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(workspace.root), str(data), str(units)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "within a unit\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    with workspace.store.unit() as db:
        assert dangling(db) == {}
        row = db.execute("SELECT count(*) FROM comparisons").fetchone()
        origins = db.execute("SELECT count(*) FROM origins").fetchone()
    assert row is not None
    assert origins is not None
    assert row[0] < len(expected["comparisons"]), "the import was really interrupted"
    assert (origins[0] > 0) == (units > 0), "whole units are there, the one that was under way is not"
    run_import(workspace, open_import(workspace, ImportConfig(str(data))))
    assert contents(workspace) == expected


def test_importing_twice_changes_nothing(workspace: Workspace, data: Path, expected: dict[str, Any]) -> None:
    first = run_import(workspace, open_import(workspace, ImportConfig(str(data))))
    second = run_import(workspace, open_import(workspace, ImportConfig(str(data))))
    assert contents(workspace) == expected
    assert (second.rows, second.pairs, second.rejected) == (first.rows, first.pairs, first.rejected)
    assert second.new.comparisons == second.new.judgments == 0


UNITS = """
import sys
from pathlib import Path
from assay.store import Database
store = Database(Path(sys.argv[1]))
for number in range(10**9):
    with store.unit() as db:
        for part in range(20):
            db.execute("INSERT INTO principles VALUES (?, 'x', NULL)", [f"{number}-{part}"])
    print(number, flush=True)
"""


def test_a_killed_unit_of_work_is_whole_or_absent(workspace: Workspace) -> None:
    for round_ in range(3):
        path = workspace.store.path
        process = subprocess.Popen([sys.executable, "-c", UNITS, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        committed = [process.stdout.readline() for _ in range(3 + round_)]
        os.kill(process.pid, signal.SIGKILL)
        committed += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        with workspace.store.unit() as db:
            parts = dict(
                db.execute(
                    "SELECT split_part(principle_id, '-', 1)::INT, count(*) FROM principles GROUP BY 1"
                ).fetchall()
            )
            db.execute("DELETE FROM principles")
        assert set(parts.values()) == {20}
        assert {int(line) for line in committed if line.endswith("\n")} <= parts.keys()


def _limit(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes past the limit fail, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
def test_a_full_disk_is_one_clear_line_and_the_rerun_completes(
    workspace: Workspace, data: Path, expected: dict[str, Any]
) -> None:
    program = "from assay.cli.main import main; main()"
    command = [sys.executable, "-c", program, "data", "import", str(data), "-w", str(workspace.root)]
    limit = workspace.store.path.stat().st_size + 100_000
    failed = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: _limit(limit))
    assert failed.returncode == 5, failed.stderr
    complaints = [line for line in failed.stderr.splitlines() if line.startswith("assay: ")]
    assert len(complaints) == 1
    assert str(workspace.store.path) in complaints[0]
    assert "Traceback" not in failed.stderr
    subprocess.run(command, capture_output=True, check=True)
    assert contents(workspace) == expected
    with workspace.store.unit() as db:
        assert dangling(db) == {}
