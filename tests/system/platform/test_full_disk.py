"""A full disk is one clear line in every command, whatever library meets it; what was stored stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import full_disk_child
import pytest

from assay.errors import BackendError
from assay.system.full_disk import ADVICE, full_disk_line

COMMANDS = ["import", "stats", "export", "backup", "train", "rl", "train-json", "init elsewhere"]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("full")
    if shutil.which("unshare") is None:
        pytest.skip("no unshare: a small file system cannot be mounted")
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if subprocess.run([*NAMESPACE, *mount], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets no user mount a file system in a namespace of their own")
    command = [*NAMESPACE, sys.executable, full_disk_child.__file__, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_it_in_one_line_that_names_the_path(report: dict[str, Any], name: str) -> None:
    code, output, error = report[name]
    assert code == BackendError.exit_code, error
    lines = [line for line in error.splitlines() if line.startswith("assay: ")]
    assert len(lines) == 1, error
    assert lines[0].startswith("assay: the disk is full: /")
    assert lines[0].endswith(ADVICE)
    assert "Traceback" not in error
    if name.endswith("json"):
        assert json.loads(output)["error"] == {"code": "backend", "message": lines[0].removeprefix("assay: ")}


@pytest.mark.slow
def test_every_library_is_understood(report: dict[str, Any]) -> None:
    assert len(report["libraries"]) == 8
    for name, line in report["libraries"].items():
        assert line, f"{name}: {line!r}"
        assert line.startswith("the disk is full: /"), name
        assert "://" not in line


@pytest.mark.slow
def test_nothing_stored_is_lost_and_the_rerun_completes(report: dict[str, Any]) -> None:
    code, output, error = report["again"]
    assert code == 0, error
    again = json.loads(output)
    assert (again["rows"], again["pairs"], again["rejected"]) == (3000, 3000, {})
    assert report["comparisons"] == 3020


def test_other_errors_are_none() -> None:
    assert full_disk_line(OSError(13, "Permission denied", "/x")) is None
    assert full_disk_line(ValueError("errno 285")) is None


def test_the_cause_and_the_members_of_a_group_count() -> None:
    cause = OSError(28, "No space left on device", "/data/a b/x.part")
    failed = BackendError("the checkpoint could not be written")
    failed.__cause__ = cause
    group = ExceptionGroup("two tasks", [ValueError("x"), failed])
    for error in (failed, group):
        assert full_disk_line(error) == f"the disk is full: /data/a b/x.part: No space left on device; {ADVICE}"
