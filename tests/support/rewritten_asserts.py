"""pytest rewrites the asserts of each test file before it imports it, and keeps the result beside it. Where several
processes collect the same files at once, each would rewrite all of them: here each begins with a share of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_in_turns(config: pytest.Config, folder: Path) -> None:
    """Rewrites the test files below `folder` that no process has, this worker's share of them first. Any other process
    than a worker of pytest-xdist is alone and does nothing here: what it collects it rewrites."""
    settings = getattr(config, "workerinput", None)
    if settings is None or sys.dont_write_bytecode:
        return
    workers, own = settings["workercount"], int(settings["workerid"].removeprefix("gw"))
    files = sorted(folder.rglob("test_*.py"))
    state = config.stash[rewrite.assertstate_key]
    for turn in range(workers):
        for file in files[(own + turn) % workers :: workers]:
            kept = rewrite.get_cache_dir(file) / (file.name.removesuffix(".py") + rewrite.PYC_TAIL)
            if kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime:
                continue
            if rewrite.try_makedirs(kept.parent):
                source, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(state, code, source, kept)
