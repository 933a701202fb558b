"""Runs a command for as long as the process that asked for it lives: `python parent_watchdog.py PARENT COMMAND...`.

Covers: ending the command, and all that it started, when process number PARENT is gone, however it ended: `kill -9`
leaves nobody who could do it. It is to be the leader of a process group of its own, which it ends as a whole. Imports
the standard library alone, so that it is there at once. Leaves out: ending while the parent lives (the parent's, by a
signal to the group).

Why not PR_SET_PDEATHSIG: it is Linux's alone, is sent when the thread ends that started the process, and reaches the
process itself and none of its children, of which one holds a language model's memory.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

LOOK_S, GRACE_S = 0.5, 5.0


def guard(parent: int, command: Sequence[str]) -> int:
    """The command's exit status. Does not return where the parent is gone: the whole group is killed."""
    # The group's signal to end is the command's; a handler, since being deaf to it would be inherited.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while process.poll() is None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            os.killpg(0, signal.SIGKILL)
        time.sleep(LOOK_S)
    os.killpg(0, signal.SIGTERM)  # what it has left behind
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), sys.argv[2:]))
