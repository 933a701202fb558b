"""How a program of Assay ends.

Covers: the end of a process of its own. Leaves out: what each part does at the end, which registers itself (atexit).

Python's own end takes every object apart, one at a time, which after torch and transformers costs 1.3 s of CPU time: a
quarter of what a command with a small model takes. The system takes the memory back at once. So this ends as the
children of `multiprocessing` do: threads are waited for, what was registered is called, streams are flushed.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def end(code: int) -> NoReturn:
    """End this process with an exit code, for the last line of a program. Under a profiler, a debugger or a measurement
    of coverage, and where the output cannot be written, raises SystemExit: Python's own end then says what it has to.
    """
    if _watched():
        raise SystemExit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # pools end in it too, and no public name does that
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # a program without a console
                stream.flush()
    except (OSError, ValueError):
        raise SystemExit(code) from None
    os._exit(code)


def _watched() -> bool:
    """Whether somebody follows this process from inside, and writes down at Python's own end what was seen."""
    if sys.version_info >= (3, 12) and any(sys.monitoring.get_tool(number) for number in range(6)):
        return True
    return sys.gettrace() is not None or sys.getprofile() is not None
