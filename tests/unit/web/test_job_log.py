"""Parts of a job's output: where one ends the next begins, and no character is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_web.processes.log import MOST, OUTPUT_FILE, log_part, tail


def test_parts_join_to_the_whole_while_it_is_written(tmp_path: Path) -> None:
    whole = "línea 日本 🙂\n".encode() * 9
    text, position = "", 0
    with (tmp_path / OUTPUT_FILE).open("wb", buffering=0) as file:
        for at in range(0, len(whole), 5):  # a writer that is caught within a character
            file.write(whole[at : at + 5])
            part = log_part(tmp_path, position)
            assert part.start == position
            text, position = text + part.text, part.end
    assert text.encode() == whole
    assert position == part.size == len(whole)


@pytest.mark.parametrize(("start", "begin"), [(-4, 6), (-100, 0), (3, 3), (99, 10)])
def test_a_part_begins_within_the_output(tmp_path: Path, start: int, begin: int) -> None:
    (tmp_path / OUTPUT_FILE).write_bytes(b"0123456789")
    part = log_part(tmp_path, start)
    assert (part.start, part.text) == (begin, "0123456789"[begin:])


def test_a_long_output_comes_in_parts_and_its_end_as_a_terminal_shows_it(tmp_path: Path) -> None:
    (tmp_path / OUTPUT_FILE).write_bytes(b"x" * (2 * MOST) + b"\n10 %\r50 %\r\ndone\n\xff")
    first = log_part(tmp_path, 0)
    assert (len(first.text), first.end) == (MOST, MOST)
    assert tail(tmp_path, 11) == "50 %\ndone\n�"
    assert log_part(tmp_path / "none", 0).size == 0
