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


def test_no_other_machine_is_reached_for_a_curator_however_it_is_said(workspace: Workspace) -> None:
    known = ["http://127.0.0.1:8700"]
    for settings in (
        {"reward": ["http://127.0.0.1:8700@evil.example"]},
        {"reward": ["http://127.0.0.1:8700\\@evil.example"]},
        {"reward": ["http://127.0.0.1:8700,@evil.example"]},
        {"set": ['reward.source="http:\\x2f\\x2fevil.example"']},
        {"tool": ["search?url=http%3A%2F%2Fevil.example"]},
        {"fetch_from": ["169.254.169.254"]},
        {"on": "ray:10.0.0.1:6379"},
    ):
        with pytest.raises(ProblemError, match=r"address|other machines") as refused:
            require_reach(workspace, CURATOR, settings, known)
        assert refused.value.status == 403
    require_reach(workspace, CURATOR, {"on": "local:2", "set": ["reward=[http://127.0.0.1:8700]", "lr=1e-6"]}, known)


def test_a_text_is_no_file(workspace: Workspace) -> None:
    require_reach(workspace, CURATOR, {"stop": ["[/INST]", "</s>", "//"], "separator": "/"})


def test_code_and_folders_are_found_within_values(workspace: Workspace) -> None:
    for value in ("x=[subprocess:run]", 'x="subprocess:run"', "x={kind: subprocess:run}", 'x="subprocess\\x3arun"'):
        with pytest.raises(ProblemError, match="is code that would be run"):
            require_reach(workspace, CURATOR, {"set": [value]})
    for value in ('x="/etc/passwd"', "x=[/etc/passwd]", 'x="\\x2fetc\\x2fpasswd"', "dpo:/etc@/var", "x=prover:/etc"):
        with pytest.raises(ProblemError, match="outside the workspace"):
            require_reach(workspace, CURATOR, {"set": [value]})


@pytest.mark.parametrize(("field", "file"), [("judges", "judges.txt"), ("config", "loop.json"), ("recipe", "r.YAML")])
def test_an_uploaded_description_is_none_by_any_name(workspace: Workspace, field: str, file: str) -> None:
    (workspace.root / "uploads").mkdir()
    (workspace.root / "uploads" / file).write_text("judges: [{kind: 'subprocess:run'}]\n")
    with pytest.raises(NotFoundError, match="among the files of the workspace"):
        require_reach(workspace, CURATOR, {field: f"uploads/{file}"})
    require_reach(workspace, ADMIN, {field: f"uploads/{file}"})


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
