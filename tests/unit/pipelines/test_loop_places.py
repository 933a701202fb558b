"""Where a loop's file says that the pool is embedded: checked as the option is, and the option wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.cli.main import build_app
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.commands import curate
from assay_pipelines.curation.loop.config import Stage1Config
from assay_pipelines.curation.loop.state import Loop, StepOutcome


def loop_file(folder: Path, on: str) -> Path:
    path = folder / "loop.yaml"
    path.write_text(f"name: first\nsource_votes: true\nrun_on: {on}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("on", ["moon", "local:x", "rays"])
def test_a_place_that_is_none_is_refused_by_its_key(tmp_path: Path, on: str) -> None:
    with pytest.raises(BadInputError, match=r"loop.yaml.*run_on.* is no place to work"):
        Stage1Config.read(loop_file(tmp_path, on))


@pytest.mark.parametrize(
    ("options", "place"), [([], "local:3"), (["--on", "local:2"], "local:2"), (["--on", "local"], None)]
)
def test_the_option_wins_over_the_file(
    options: list[str], place: str | None, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []

    def opened(on: str) -> Any:
        places.append(on)
        raise BadInputError("as far as this test goes")

    def built(*parts: Any) -> Any:
        raise BadInputError("in this process")

    monkeypatch.setattr(curate, "open_executor", opened)
    monkeypatch.setattr("assay_pipelines.curation.loop.building.build_parts", built)
    command = ["curate", "stage1", str(loop_file(tmp_path, "local:3")), "--workspace", str(workspace.root), *options]
    result = CliRunner().invoke(build_app(), command)
    assert result.exit_code != 0
    assert places == ([place] if place else [])


def test_a_loop_that_has_begun_may_move(workspace: Workspace) -> None:
    Loop.open(workspace, Stage1Config("first", source_votes=True), "run-1").once(0, "train", lambda: StepOutcome({}))
    moved = Loop.open(workspace, Stage1Config("first", source_votes=True, run_on="local:4"), "run-2")
    assert moved.done(0, "train") == {}
    with pytest.raises(BadInputError, match="began with another seed"):
        Loop.open(workspace, Stage1Config("first", source_votes=True, seed=3), "run-3")
