"""The `assay` command in this process, its output captured: the imports of torch and DuckDB are paid once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cli.main import main

Run = Callable[..., tuple[int, str, str]]  #: arguments to (exit code, standard output, standard error)


def captured(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command with its output; what was printed before is dropped."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = exit_code(*arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def exit_code(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)
