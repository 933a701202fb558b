"""What a run printed is in its folder, bounded, and who prints does not notice."""

import logging
import sys
from contextlib import suppress

import pytest

from assay.errors import BadInputError
from assay.runs import console_log
from assay.runs.console_log import FILE, read_console
from assay.runs.record import start_run
from assay.workspace import Workspace


def texts(lines: list[str]) -> list[str]:
    return [line.split(" ", 1)[1] for line in lines]


def test_both_streams_of_a_run_are_kept_as_they_are_read(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.stdout.write
    handler = logging.StreamHandler(sys.stderr)  # holds the stream from before the run
    with start_run(workspace, "train", {}) as outer:
        print("begin")
        handler.emit(logging.LogRecord("x", 30, "", 0, "careful: \u00e4\u6f22", None, None))
        sys.stderr.write("step 1\rstep 2\rstep")
        sys.stderr.write(" 3\n")
        print("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07")
        with start_run(workspace, "eval", {}) as inner:
            print("within")
        sys.stdout.write("no line end")
    print("after")
    found = texts(read_console(outer.folder).lines)
    assert found == ["begin", "careful: \u00e4\u6f22", "step 3", "red link", "within", "no line end"]
    assert texts(read_console(inner.folder).lines) == ["within"]
    assert capsys.readouterr().out.endswith("within\nno line endafter\n"), "the terminal shows all of it"
    assert sys.stdout.write == before


def test_the_error_that_ended_a_run_is_its_last_output(workspace: Workspace) -> None:
    runs = []
    for error in (ValueError("the disk is <full>"), BadInputError("no such file")):
        with suppress(type(error)), start_run(workspace, "train", {}) as run:
            runs.append(run)
            raise error
    unexpected, bad_input = (texts(read_console(run.folder).lines) for run in runs)
    assert (unexpected[0], unexpected[-1]) == ("Traceback (most recent call last):", "ValueError: the disk is <full>")
    assert bad_input == ["BadInputError: no such file"]


def test_of_long_output_the_end_is_kept(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_log, "LARGEST", 10_000)
    with start_run(workspace, "train", {}) as run:
        for number in range(3000):
            print(f"line {number}")
        print("x" * 9000)
    assert (run.folder / FILE).stat().st_size <= 10_000 + 2 * console_log.LONGEST_LINE
    whole = read_console(run.folder)
    lines = texts(whole.lines)
    assert lines[0] == "(earlier output was dropped)"
    assert lines[-2:] == ["line 2999", "x" * console_log.LONGEST_LINE + " (cut)"]
    numbers = [int(line.split()[1]) for line in lines[1:-1] if line.startswith("line")]
    assert numbers == list(range(numbers[0], 3000)), "nothing is missing in between"
    page = read_console(run.folder, after=0, most=1000)
    assert texts(page.lines) == lines[: len(page.lines)]
    assert read_console(run.folder, after=page.next).lines == whole.lines[len(page.lines) :]
    assert read_console(run.folder, after=10**9).lines == whole.lines, "the file was cut meanwhile"


def test_a_full_disk_ends_no_run(workspace: Workspace) -> None:
    with start_run(workspace, "train", {}) as run:
        (run.folder / FILE).mkdir()
        print("nobody keeps this")
    assert read_console(run.folder).lines == []
