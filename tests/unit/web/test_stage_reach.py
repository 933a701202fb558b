"""Which models a curator may name for a stage, and that an admin may name any folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.errors import BadInputError
from assay.http.problems import ProblemError
from assay.models.tiny import tiny_model
from assay.runs.record import folder_digest, start_run
from assay.workspace import Workspace
from assay_web.accounts.sessions import Person
from assay_web.curate.estimates import require_model_access

CURATOR, ADMIN = Person("cleo", "curator", ""), Person("ada", "admin", "")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model(), tmp_path / "outside"))


def test_models_of_the_workspace_and_of_the_hub_are_within_reach(workspace: Workspace) -> None:
    (workspace.root / "models" / "mine").mkdir(parents=True)
    inside = [str(workspace.root / "models" / "mine"), "models/mine", "./models/mine"]
    require_model_access(workspace, CURATOR, [*inside, "smollm2", "tiny", "minilm", "owner/name", "all-MiniLM-L6-v2"])


def test_a_folder_elsewhere_takes_an_admin(workspace: Workspace, outside: Path) -> None:
    (workspace.root / "sly").symlink_to(outside)
    up = f"models/../../{outside.name}"
    names = [str(outside), up, "sly", "~", "~/model", "/", "..", "./sly/../../x"]
    for name in names:
        with pytest.raises(ProblemError, match="outside the workspace") as refused:
            require_model_access(workspace, CURATOR, ["smollm2", name])
        assert refused.value.status == 403, name
    require_model_access(workspace, ADMIN, names)


def test_no_address_is_asked_for_a_curator(workspace: Workspace) -> None:
    with pytest.raises(ProblemError, match="is an address"):
        require_model_access(workspace, CURATOR, ["http://127.0.0.1:1/model"])


def test_what_is_not_there_is_said_without_a_look_outside(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="no such person"):
        require_model_access(workspace, ADMIN, ["~nobody-of-this-name/model"])
    with pytest.raises(BadInputError, match="no such folder in the workspace"):
        require_model_access(workspace, CURATOR, ["./models/none"])


@pytest.mark.parametrize("name", ["./" + "\U0001f600" * 190, "\0model"])
def test_what_no_file_can_be_called_is_bad_input(workspace: Workspace, name: str) -> None:
    with pytest.raises(BadInputError, match="no model's name"):
        require_model_access(workspace, CURATOR, [name])


def test_a_model_that_a_run_made_is_within_reach_wherever_it_lies(workspace: Workspace, outside: Path) -> None:
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "elsewhere", outside, content_hash=folder_digest(outside))
    require_model_access(workspace, CURATOR, ["elsewhere", str(outside)])
