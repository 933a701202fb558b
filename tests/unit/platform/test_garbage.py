"""A program of Assay looks for garbage less often; a process that calls it keeps its own settings."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from assay.cli.main import main
from assay.system.gc_threshold import OBJECTS

#: As the console script does it.
PROGRAM = """
import atexit, gc, sys
from assay.cli.main import main
atexit.register(lambda: print(gc.get_threshold()[0], gc.isenabled()))
sys.argv = ["assay", "--version"]
main()
"""


@pytest.mark.slow
def test_the_command_collects_less() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == [f"{OBJECTS} True"]


def test_a_caller_keeps_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_threshold()
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("assay ")
    assert gc.get_threshold() == before
