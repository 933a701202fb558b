"""pytest rewrites the asserts of each test file before it imports it, and keeps the result beside it. Where several
processes collect the same files at once, each would rewrite all of them: here each begins with a share of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def rewrite_in_turns(config: pytest.Config) -> None:
    """Rewrites the test files to be collected that no process has, this worker's share of them first. Any other
    process than a worker of pytest-xdist is alone and does nothing here: what it collects it rewrites."""
    settings = getattr(config, "workerinput", None)
    if settings is None or sys.dont_write_bytecode:
        return
    try:
        from _pytest.assertion.rewrite import (
            PYC_TAIL,
            _rewrite_test,
            _write_pyc,
            assertstate_key,
            get_cache_dir,
            try_makedirs,
        )
    except ImportError:  # of a pytest that names them otherwise; it only takes longer
        return
    workers, own = settings["workercount"], int(settings["workerid"].removeprefix("gw"))
    places = {Path(argument.partition("::")[0]) for argument in config.args}
    files = sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("test_*.py")))
    state = config.stash[assertstate_key]
    for turn in range(workers):
        for file in files[(own + turn) % workers :: workers]:
            kept = get_cache_dir(file) / (file.name.removesuffix(".py") + PYC_TAIL)
            if kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime:
                continue
            if try_makedirs(kept.parent):
                source, code = _rewrite_test(file, config)
                _write_pyc(state, code, source, kept)
