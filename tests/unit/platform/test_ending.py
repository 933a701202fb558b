"""A program of Assay ends with what was registered for its end done, and its output written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

#: A thread that is waited for, a pool nobody has shut down, a callback, and an object that only Python's own end frees.
PROGRAM = """
import atexit, threading, time
from concurrent.futures import ThreadPoolExecutor
from assay.system.fast_exit import exit_fast

class Object:
    def __del__(self):
        print("freed")

kept = Object()
ThreadPoolExecutor(1).submit(int)
done = threading.Event()
threading.Thread(target=lambda: (time.sleep(0.1), done.set())).start()
atexit.register(lambda: print("called", done.is_set()))
print("last words", end="")
exit_fast(3)
print("not reached")
"""


def program(stdout: int | TextIO = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, check=False, text=True, stdout=stdout, stderr=subprocess.PIPE, env=environment)


def test_what_was_registered_is_done_and_the_output_written() -> None:
    done = program()
    assert (done.returncode, done.stdout, done.stderr) == (3, "last wordscalled True\n", "")


def test_a_profiler_has_what_it_saw(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "cProfile", "-o", str(tmp_path / "seen"), str(script)]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    assert done.stdout == "last wordscalled True\nfreed\n"
    assert (tmp_path / "seen").stat().st_size > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_said() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = program(stdout=full)
    assert done.returncode == 120  # Python's, where a stream cannot be flushed at the end
    assert "No space left on device" in done.stderr
