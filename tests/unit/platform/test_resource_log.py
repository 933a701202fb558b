"""What a run uses is sampled: of its process and what it started, bounded, without stopping it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.runs import resource_log
from assay.runs.record import start_run
from assay.runs.resource_log import ProcessSampler, read_resources, sampling_to
from assay.workspace import Workspace

BUSY = "x = bytearray(80_000_000)\nprint(1, flush=True)\nwhile True: pass"


def test_a_process_that_it_started_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        alone = ProcessSampler(os.getpid())
        before = alone.sample()
        child = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            child.stdout.readline()
            alone.sample()
            time.sleep(0.3)
            during = alone.sample()
        finally:
            child.kill()
            child.communicate()
        assert during["processes"] == before["processes"] + 1
        assert during["memory"] - before["memory"] > 80_000_000
        assert during["cores"] > 0.1, "a busy loop, on however busy a machine"
        assert alone.sample()["cores"] >= 0, "who ended takes its time with it"
        idle.communicate(b"\n")


def test_samples_of_a_long_run_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FIRST_S", 0.0), ("EVERY_S", 0.001), ("MOST", 10)):
        monkeypatch.setattr(resource_log, name, value)
    with sampling_to(tmp_path):
        deadline = time.monotonic() + 20
        while len(read_resources(tmp_path)) < 8 or not (tmp_path / resource_log.FILE).is_file():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.2)
    rows = read_resources(tmp_path)
    assert 5 <= len(rows) <= 10
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


def test_a_short_run_has_no_samples_and_one_within_another_leaves_them_to_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_run(workspace, "eval", {}) as short:
        pass
    assert read_resources(short.folder) == []
    monkeypatch.setattr(resource_log, "FIRST_S", 0.0)
    with start_run(workspace, "train", {}) as outer, start_run(workspace, "eval", {}) as inner:
        deadline = time.monotonic() + 20
        while not read_resources(outer.folder):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert read_resources(inner.folder) == []
