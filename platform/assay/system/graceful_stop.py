"""Graceful stop of long work: a first Ctrl-C takes effect after the current step, a second one at once.

Covers: the two signals that ask a process to end. Leaves out: what is saved then (the training loops), who
sends the signal (`assay.runs.process`).
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)

#: Ctrl-C, and what supervisors send. A shell that starts work in the background has it ignore the first.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """`requested`: whether a signal has come; read between steps."""

    def __init__(self) -> None:
        self.requested = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. Raises KeyboardInterrupt the second time."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        log.warning("stopping after this step, with a checkpoint; once more stops at once, without")


_active: list[StopSignal] = []


def stop_requested() -> bool:
    """Whether a signal has come to the work under way: what waits in the middle of a step need not wait longer."""
    return any(stop.requested for stop in _active)


@contextmanager
def stop_on_signal(*, held: bool = True) -> Iterator[StopSignal]:
    """During the block Ctrl-C and SIGTERM set `requested` instead of ending the process.

    Nothing changes with `held=False` and outside the main thread, which gets no signals. A Ctrl-C that the process
    ignored before stays ignored: it was meant for another.
    """
    stop = StopSignal()
    if not held or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, stop.note)
    _active.append(stop)
    try:
        yield stop
    finally:
        _active.remove(stop)
        for number in handled:
            signal.signal(number, before[number])
