"""JSON Lines of a run: rows that hold any text, a file that a kill cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.runs.json_log import JsonLog


@pytest.mark.parametrize("character", ["\u2028", "\u0085", "\x0b", "\r", "\x1e"])
def test_a_text_with_a_line_separator_is_one_row(tmp_path: Path, character: str) -> None:
    log = JsonLog(tmp_path / "rows.jsonl")
    rows = [{"response": f"a{character}b"}, {"response": "c"}]
    log.append(rows)
    assert log.rows() == rows


def test_a_row_cut_within_a_character_is_no_row(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "rows.jsonl")
    log.append([{"response": "a"}, {"response": "é"}])
    content = log.path.read_bytes()
    log.path.write_bytes(content[: content.index("é".encode()) + 1])
    assert log.rows() == [{"response": "a"}]
