"""Whether an error, of whatever library, is that of a full disk, and the one line that says so.

Python, DuckDB, SQLite, Polars, Arrow, torch and safetensors each have words of their own for it. Leaves out: who prints
the line (`assay.cli.main`).
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = re.compile(
    r"No space left on device|Disk quota exceeded|database or disk is full|os error 28\b|\[?[Ee]rrno 28\b"
    r"|failed to offload data block"  # DuckDB, where its spill folder takes no more
    r"|PytorchStreamWriter failed writing|inline_container\.cc.*unexpected pos"  # torch, in the middle of a file
)
_PATH = re.compile(r"""["'](/[^"']+)["']|(?<![\w/:])(/(?!/).+?)(?=: |; |, |$)""", re.MULTILINE)
_FULL_BYTES = 1 << 20  #: a file system with less is the full one
ADVICE = "nothing acknowledged is lost; free some space and run the command again"


def full_disk_line(error: BaseException, paths: Iterable[str] = ()) -> str | None:
    """The line for an error that a full disk caused, with the path; None for any other.

    `paths`: where the process may have been writing, for the libraries that do not say it.
    """
    for each in _chain(error):
        number = each.errno if isinstance(each, OSError) else None
        if number not in _NUMBERS and not _WORDS.search(str(each)):
            continue
        file = each.filename if isinstance(each, OSError) else None
        path = os.fsdecode(file) if isinstance(file, str | bytes) else _path_in(error, each) or _full_of(paths)
        return f"the disk is full: {f'{path}: ' if path else ''}No space left on device; {ADVICE}"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from or while, and the members of groups; each once."""
    pending, seen = [error], set[int]()
    while pending:
        each = pending.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        pending += [cause for cause in (each.__cause__, each.__context__) if cause is not None]


def _path_in(*errors: BaseException) -> str | None:
    for error in errors:
        if match := _PATH.search(str(error)):
            return match[1] or match[2]
    return None


def _full_of(paths: Iterable[str]) -> str | None:
    """The first of the paths, the current folder and the temporary one whose file system is full."""
    for path in (*paths, os.getcwd(), tempfile.gettempdir()):
        if os.path.exists(path) and shutil.disk_usage(path).free < _FULL_BYTES:
            return os.path.abspath(path)
    return None
