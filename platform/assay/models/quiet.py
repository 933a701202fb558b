"""Transformers without progress bars and warnings: Assay shows its own progress and one-line errors."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Progress bars off and only errors logged inside the block; restored after it."""
    from transformers.utils import logging

    bar_shown = logging.is_progress_bar_enabled()
    level = logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar_shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
