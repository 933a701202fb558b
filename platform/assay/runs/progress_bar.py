"""Progress bars on standard error: live in a terminal, a line every few seconds elsewhere.

What they count is noted in the run's folder, too, where there is a run (`assay.runs.progress_file`).
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from assay.runs.progress_file import noted
from assay.system.plurals import counted, noun_for

Advance = Callable[[int], None]
LOG_EVERY_S = 15.0


def silent(_: int) -> None:
    """An `Advance` that shows nothing: the default of library functions."""


@contextmanager
def progress_bar(description: str, total: int | None = None, *, unit: str = "") -> Iterator[Advance]:
    """Yield a function to call with the number of units just done. `total=None` when it is not known."""
    with noted(description, total, unit=unit) as note, _bar(description, total, unit) as show:

        def advance(n: int) -> None:
            note(n)
            show(n)

        yield advance


@contextmanager
def _bar(description: str, total: int | None, unit: str) -> Iterator[Advance]:
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(description, total=total)
            yield lambda n: bar.advance(task, n)
        return
    started = last_print = time.monotonic()
    done = 0

    def advance(n: int) -> None:
        nonlocal done, last_print
        done += n
        now = time.monotonic()
        if now - last_print >= LOG_EVERY_S:
            last_print = now
            of = f"/{total}" if total is not None else ""
            print(f"{description}: {done}{of} {noun_for(total or done, unit)}".rstrip(), file=sys.stderr, flush=True)

    yield advance
    seconds = time.monotonic() - started
    what = counted(done, unit) if unit else str(done)
    print(f"{description}: {what} in {seconds:.1f} s", file=sys.stderr, flush=True)
