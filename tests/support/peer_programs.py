"""Programs of tests/support/peers, each in the environment that `make peers-env` builds for its project."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ.get("ASSAY_PEERS_ENV", REPOSITORY / ".venv-peers"))
PROGRAM_S = 600


def said_by(peer: str, program: str, *arguments: str | Path, **variables: str) -> Any:
    """What the peer's program prints last, as JSON; `variables` of its environment. Skips where that was not built."""
    if not (PEERS / peer / ".installed").exists():
        pytest.skip(f"no environment of {peer}: make peers-env")
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "WANDB_MODE": "disabled"}
    done = subprocess.run(
        [str(PEERS / peer / "bin/python"), str(REPOSITORY / "tests/support/peers" / program), *map(str, arguments)],
        env=os.environ | settings | variables,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
