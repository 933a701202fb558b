"""A server under load whose engine and HTTP workers are killed and stopped again and again: benchmarks/soak.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_serve_processes import pytestmark

__all__ = ["pytestmark"]

SOAK = Path(__file__).parents[3] / "benchmarks" / "soak.py"
FAULTS = ("engine SIGSTOP", "engine SIGKILL", "HTTP worker SIGSTOP", "HTTP worker SIGKILL")


def soak(seconds: int, clients: int, *more: str) -> dict[str, Any]:
    """The figures of a run that found nothing wrong."""
    options = ["--seconds", str(seconds), "--clients", str(clients), "--faults", "all", "--json", *more]
    ended = subprocess.run(
        [sys.executable, str(SOAK), *options], capture_output=True, text=True, timeout=seconds + 900, cwd=SOAK.parent
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])["figures"]
    print(figures)  # shown by `pytest -s`
    assert figures["what must not happen"] == figures["lost"] == 0
    undocumented = {status for status in figures["replies"] if status.startswith("5")} - {"503", "504"}
    assert not undocumented
    assert figures["scores checked"] > 0
    return figures


@pytest.mark.slow
def test_nothing_is_wrong_or_lost_while_processes_end_and_are_stopped() -> None:
    """Each fault once, however long that takes; that it is fast enough is for a machine that does nothing else."""
    figures = soak(5, 8, "--turns", "4", "--patience", "10")
    assert set(FAULTS) == set(figures["faults"])


@pytest.mark.slow
def test_nothing_is_wrong_or_lost_in_five_minutes() -> None:
    figures = soak(300, 64)
    assert set(FAULTS) == set(figures["faults"])
    assert all(count >= 5 for count in figures["faults"].values()), figures["faults"]
