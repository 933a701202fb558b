"""What a curator may name in the settings of a job, and that an admin may name any folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.errors import BadInputError, NotFoundError
from assay.http.problems import ProblemError
from assay.models.tiny import tiny_model
from assay.runs.record import folder_digest, start_run
from assay.workspace import Workspace
from assay_web.accounts.sessions import Person
from assay_web.jobs.reach import require_reach

CURATOR, ADMIN = Person("cleo", "curator", ""), Person("ada", "admin", "")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model(), tmp_path / "outside"))


def test_models_of_the_workspace_and_of_the_hub_are_within_reach(workspace: Workspace) -> None:
    (workspace.root / "models" / "mine").mkdir(parents=True)
    inside = [str(workspace.root / "models" / "mine"), "models/mine", "./models/mine"]
    require_reach(
        workspace, CURATOR, {"model": [*inside, "smollm2", "tiny", "minilm", "owner/name", "all-MiniLM-L6-v2"]}
    )


def test_a_folder_elsewhere_takes_an_admin(workspace: Workspace, outside: Path) -> None:
    (workspace.root / "sly").symlink_to(outside)
    up = f"models/../../{outside.name}"
    names = [str(outside), up, "sly", "~", "~/model", "/", "..", "./sly/../../x"]
    for name in names:
        with pytest.raises(ProblemError, match="outside the workspace") as refused:
            require_reach(workspace, CURATOR, {"model": ["smollm2", name]})
        assert refused.value.status == 403, name
    require_reach(workspace, ADMIN, {"model": names})


def test_no_address_is_asked_for_a_curator(workspace: Workspace) -> None:
    with pytest.raises(ProblemError, match="is an address"):
        require_reach(workspace, CURATOR, {"model": ["http://127.0.0.1:1/model"]})
    known = ["http://127.0.0.1:8700"]
    require_reach(workspace, CURATOR, {"reward": ["quality=http://127.0.0.1:8700/#safety", "verifier"]}, known)
    with pytest.raises(ProblemError, match="is an address"):
        require_reach(workspace, CURATOR, {"reward": ["http://127.0.0.1:8700,http://127.0.0.1:22"]}, known)


def test_code_takes_an_admin(workspace: Workspace) -> None:
    (workspace.root / "uploads").mkdir()
    for file in ("uploads/mine.yaml", "loop.yaml"):
        (workspace.root / file).write_text("reward: uploads/mine.py:Reward\n")
    for code in ("uploads/mine.py:Reward", "quality=uploads/mine.py:reward", "subprocess:check_output", "mine.py"):
        with pytest.raises(ProblemError, match="is code that would be run"):
            require_reach(workspace, CURATOR, {"reward": [code]})
        require_reach(workspace, ADMIN, {"reward": [code]})
    require_reach(workspace, CURATOR, {"config": "loop.yaml", "prompts": ["constrained:64", "hf:owner/name#sub"]})
    with pytest.raises(NotFoundError, match="among the files of the workspace"):  # what it names would be run
        require_reach(workspace, CURATOR, {"config": "uploads/mine.yaml"})


def test_a_home_of_nobody_is_bad_input(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="no such person"):
        require_reach(workspace, ADMIN, {"model": ["~nobody-of-this-name/model"]})


@pytest.mark.parametrize("name", ["./" + "\U0001f600" * 190, "\0model"])
def test_what_no_file_can_be_called_is_bad_input(workspace: Workspace, name: str) -> None:
    with pytest.raises(BadInputError, match="no file's name"):
        require_reach(workspace, CURATOR, {"model": [name]})


def test_a_model_that_a_run_made_is_within_reach_wherever_it_lies(workspace: Workspace, outside: Path) -> None:
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "elsewhere", outside, content_hash=folder_digest(outside))
    require_reach(workspace, CURATOR, {"model": ["elsewhere", str(outside)]})
