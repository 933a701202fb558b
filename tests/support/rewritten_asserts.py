"""pytest rewrites the asserts of each test file before it imports it, and keeps the result beside it. Where several
processes collect the same files at once, each would rewrite all of them: here each begins with a share of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def rewrite_in_turns(config: pytest.Config, tests: Path) -> None:
    """Rewrites the files of `tests` to be collected that no process has, this worker's share of them first. Any other
    process than a worker of pytest-xdist is alone and does nothing here: what it collects it rewrites, and so does
    collection with what is left out here."""
    settings = getattr(config, "workerinput", {"workerid": ""})
    number = settings["workerid"].removeprefix("gw")
    if not number.isdigit() or sys.dont_write_bytecode:
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
    state = config.stash.get(assertstate_key, None)
    if state is None:  # --assert=plain
        return
    workers = settings["workercount"]
    places = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
    files = sorted(
        file for file in tests.rglob("test_*.py") if any(file == place or place in file.parents for place in places)
    )
    for turn in range(workers):
        for file in files[(int(number) + turn) % workers :: workers]:
            kept = get_cache_dir(file) / (file.name.removesuffix(".py") + PYC_TAIL)
            if kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime:
                continue
            if try_makedirs(kept.parent):
                try:
                    source, code = _rewrite_test(file, config)
                except (OSError, SyntaxError, ValueError, RecursionError):
                    continue  # collection reports it
                _write_pyc(state, code, source, kept)
