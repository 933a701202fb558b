"""Progress bars on standard error, with rate and time left: live in a terminal, a line every few seconds elsewhere.

What they count is noted in the run's folder, too, where there is a run (`assay.runs.progress_file`).
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from assay.runs.progress_file import Count, noted
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
    count = Count(description, total, unit)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(description, total=total, rate="")

            def show(n: int) -> None:
                count.advance(n)
                bar.update(task, advance=n, rate=_rate(count.progress().rate))

            yield show
        return
    started = last_print = time.monotonic()

    def advance(n: int) -> None:
        nonlocal last_print
        count.advance(n)
        now = time.monotonic()
        if now - last_print >= LOG_EVERY_S:
            last_print = now
            of, progress = f"/{total}" if total is not None else "", count.progress()
            line = [f"{description}: {count.done}{of} {noun_for(total or count.done, unit)}".rstrip()]
            if progress.rate is not None:
                line.append(_rate(progress.rate))
            if progress.seconds_left is not None:
                line.append(f"{timedelta(seconds=round(progress.seconds_left))} left")
            print(", ".join(line), file=sys.stderr, flush=True)

    yield advance
    if not count.done and total is None:  # there was nothing to count
        return
    seconds = time.monotonic() - started
    what = counted(count.done, unit) if unit else str(count.done)
    print(f"{description}: {what} in {seconds:.1f} s", file=sys.stderr, flush=True)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
