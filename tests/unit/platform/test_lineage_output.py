"""`assay lineage` as text: whole lines in a pipe, and nothing in them that a terminal would act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.cli.main import main
from assay.runs.record import start_run
from assay.workspace import Workspace


def test_lines_are_whole_and_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    workspace = Workspace.create(tmp_path / "w")
    folder = workspace.models / ("long" * 30)
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("policy", "deep\x1b[31m", folder, content_hash="0")
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["lineage", run.id, "-w", str(workspace.root)])
    printed = capsys.readouterr().out
    assert end.value.code == 0
    assert "long" * 30 in printed
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) < 400, "lines are not filled up to the width"
