"""Singular and plural in messages, and in the lines of a long piece of work."""

from __future__ import annotations

import pytest

from assay.runs.progress_bar import progress_bar
from assay.system.plurals import counted


def test_one_is_singular_whichever_form_is_given() -> None:
    assert [counted(n, "pair") for n in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]
    assert [counted(n, "judged responses") for n in (1, 3)] == ["1 judged response", "3 judged responses"]
    assert [counted(n, "kB") for n in (1, 15)] == ["1 kB", "15 kB"]


def test_a_progress_line_counts_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for unit, done in (("steps", 1), ("steps", 2), ("", 1)):
        with progress_bar("training", 2, unit=unit) as advance:
            advance(done)
    lines = [line.rsplit(" in ", 1)[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["training: 1 step", "training: 2 steps", "training: 1"]
