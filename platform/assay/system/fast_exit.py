"""Ending a process without the interpreter's own teardown.

That destroys every object one at a time: 1.3 s of CPU time after torch and transformers, a quarter of a command with a
small model. The children of `multiprocessing` end as here: threads are joined, atexit runs, streams are flushed.
"""

import atexit
import os
import sys
import threading
from typing import NoReturn


def exit_fast(code: int) -> NoReturn:
    """Exit with `code`. Raises SystemExit under a profiler, debugger or coverage, and where the output cannot be
    written."""
    if _is_traced():
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


def _is_traced() -> bool:
    """Whether a tracer, profiler or monitoring tool is active, which reports at the interpreter's own exit."""
    if sys.version_info >= (3, 12) and any(sys.monitoring.get_tool(number) for number in range(6)):
        return True
    return sys.gettrace() is not None or sys.getprofile() is not None
