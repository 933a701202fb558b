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


def soak(seconds: int, clients: int) -> dict[str, Any]:
    """The figures of a run that found nothing wrong."""
    options = ["--seconds", str(seconds), "--clients", str(clients), "--faults", "all", "--json"]
    ended = subprocess.run(
        [sys.executable, str(SOAK), *options], capture_output=True, text=True, timeout=seconds + 300, cwd=SOAK.parent
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])["figures"]
    print(figures)  # shown by `pytest -s`
    assert figures["what must not happen"] == figures["lost"] == 0
    undocumented = {status for status in figures["replies"] if status.startswith("5")} - {"503", "504"}
    assert not undocumented
    assert figures["scores checked"] > 0
    return figures


def test_nothing_is_wrong_or_lost_in_twenty_seconds_of_ended_and_stopped_processes() -> None:
    figures = soak(20, 8)
    assert {"engine SIGSTOP", "HTTP worker SIGSTOP"} <= set(figures["faults"])


@pytest.mark.slow
def test_nothing_is_wrong_or_lost_in_five_minutes() -> None:
    figures = soak(300, 64)
    assert set(FAULTS) == set(figures["faults"])
    assert all(count >= 5 for count in figures["faults"].values()), figures["faults"]
