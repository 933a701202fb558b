"""Programs of tests/support/peers, each in the environment that `make peers-env` builds for its project."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ.get("ASSAY_PEERS_ENV", REPOSITORY / ".venv-peers"))
PROGRAM_S = 600
SETTINGS = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "WANDB_MODE": "disabled"}


def said_by(peer: str, program: str, *arguments: str | Path, **variables: str) -> Any:
    """What the peer's program prints last, as JSON; `variables` of its environment. Skips where that was not built."""
    done = subprocess.run(
        command_of(peer, program, *arguments),
        env=os.environ | SETTINGS | variables,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def serving_peer(peer: str, program: str, *arguments: str | Path) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """The peer's program, which serves until its standard input ends, and the JSON that it prints once it does."""
    command = command_of(peer, program, *arguments)
    with subprocess.Popen(
        command, env=os.environ | SETTINGS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            lines: list[str] = []
            while not (lines and lines[-1].startswith("{")):
                lines.append(running.stdout.readline())
                assert lines[-1], lines
            yield json.loads(lines[-1]), running
        finally:
            running.stdin.close()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()


def command_of(peer: str, program: str, *arguments: str | Path) -> list[str]:
    """Skips where the peer's environment was not built."""
    if not (PEERS / peer / ".installed").exists():
        pytest.skip(f"no environment of {peer}: make peers-env")
    script = str(REPOSITORY / "tests/support/peers" / program)
    return [str(PEERS / peer / "bin/python"), script, *map(str, arguments)]
