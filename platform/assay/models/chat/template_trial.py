"""A chat template's first run is in a process of its own, which is killed at its deadline.

Covers: templates of checkpoints from anywhere that loop, or write, without end: Jinja's sandbox bounds neither. Leaves
out: rendering (`renderer`), a template that behaves here and hangs on a later conversation, which a server's watchdog
ends (`assay_serving.engine_process.supervisor`).

The process is a fork: it starts in milliseconds with all that the template may use, runs only the template, and never
returns.
"""

import os
import resource
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from assay.errors import BadInputError

TRIAL_S = 10.0
MEMORY_BYTES = 1 << 30  #: beyond what the process has
MOST_CHARACTERS = 1 << 22  #: of a conversation of a few words
TRIES = 2

_IN_TIME, _TOO_MUCH = 0, 3
_LONGEST_PAUSE_S = 0.02
_BLOCKED_S = 0.05  # processor seconds below which it did not loop: it waited for a lock that another thread held

_tried: dict[str, str] = {}  # templates of this process: why they are refused, "" for those that are not


def check_first_run(template: str, render: Callable[[], str]) -> None:
    """Run `render`, which renders the template, in another process if the template is new to this one.

    Raises BadInputError where it takes longer than `TRIAL_S`, or more memory or text than there should be. Other
    errors are left to the caller's own run.
    """
    if template not in _tried:
        _tried[template] = _refusal(render)
    if _tried[template]:
        raise BadInputError(_tried[template], field="chat_template")


def _refusal(render: Callable[[], str]) -> str:
    for _ in range(TRIES):
        status, processor_s = _run(render)
        if status == _TOO_MUCH:
            return "takes too much memory, or writes too much, for a conversation of a few words"
        if status is not None:
            return ""
        if processor_s > _BLOCKED_S:
            break
    return f"does not render a conversation of a few words within {TRIAL_S:g} s"


def _run(render: Callable[[], str]) -> tuple[int | None, float]:
    """The exit status of a fork that renders, None for one that was killed, and its processor seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: it takes none of their locks
        pid = os.fork()
    if pid == 0:
        _render_and_exit(render)
    deadline, pause = time.monotonic() + TRIAL_S, 0.001
    while True:
        try:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:  # the process ignores its children's ends, so that nobody knows more of this one
            return _IN_TIME, 0.0
        if ended:
            code = os.waitstatus_to_exitcode(status)
            # A signal: of the limit of processor time, or of a system without memory.
            return (code if code >= 0 else _TOO_MUCH), usage.ru_utime
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
            return None, usage.ru_utime
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE_S, 2 * pause)


def _render_and_exit(render: Callable[[], str]) -> None:
    status = _IN_TIME
    try:
        with suppress(OSError, ValueError):
            pages = int(open("/proc/self/statm", "rb").read().split()[0])  # noqa: SIM115 - the process ends at once
            most = pages * resource.getpagesize() + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            seconds = int(TRIAL_S) + 2  # should its parent be killed
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if len(render()) > MOST_CHARACTERS:
            status = _TOO_MUCH
    except MemoryError:
        status = _TOO_MUCH
    except BaseException:  # noqa: S110 - the caller's own run raises it again
        pass
    finally:
        os._exit(status)
