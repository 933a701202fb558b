"""Where a recipe says that rollout actors are: there they are, unless `--on` is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_policy_training.training import run


@pytest.mark.parametrize(("options", "place"), [([], "ray:HEAD:6379"), (["--on", "local"], "local")])
def test_the_option_wins_over_the_recipe(
    options: list[str], place: str, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []

    def configured(*, on: str, **settings: Any) -> None:
        places.append(on)
        raise BadInputError("as far as this test goes")

    monkeypatch.setattr(run, "WorkerConfig", configured)
    recipe = tmp_path / "own.yaml"
    text = "name: own\nestimator: {kind: grpo}\nobjective: {kind: ppo_clip}\n"
    recipe.write_text(f"{text}asynchrony: {{actors: 2, staleness: 1, run_on: ray:HEAD:6379}}\n", encoding="utf-8")
    settings = ["--recipe", str(recipe), "--policy", "tiny", "--reward", "verifier", "-w", str(workspace.root)]
    with pytest.raises(SystemExit):
        main(["rl", *settings, *options])
    assert places == [place]
