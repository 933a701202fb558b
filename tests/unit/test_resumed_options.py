"""`assay rl --resume` refuses what it would otherwise leave unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.cli.main import main


@pytest.mark.parametrize(
    ("option", "value"),
    [("--set", "optimisation.lr=1"), ("--lr", "0.1"), ("--seed", "3"), ("--group-size", "4"), ("--watch", "verifier")],
)
def test_a_resumed_run_keeps_its_recipe(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "w")
    for command in (["init", place], ["rl", "--resume", "run-0", option, value, "-w", place]):
        with pytest.raises(SystemExit) as end:
            main(command)
    assert end.value.code == 2
    assert f"field '{option}': a resumed run keeps its recipe" in capsys.readouterr().err
