"""What a name stands for: a folder, an artifact of the workspace, one of our models, nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import NotFoundError
from assay.runs.record import locate_model, start_run
from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import is_url, located, open_scorer


@pytest.fixture
def with_artifact(workspace: Workspace, tiny_reward_model: Path) -> Workspace:
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "first-rm", tiny_reward_model, content_hash="h")
    return workspace


def test_an_artifact_is_found_by_name_and_scores_under_it(with_artifact: Workspace, tiny_reward_model: Path) -> None:
    assert locate_model(with_artifact, "first-rm")[0] == str(tiny_reward_model)
    scorer = open_scorer("first-rm", workspace=with_artifact.root, device="cpu")
    assert scorer.info.name == "first-rm"


def test_folders_hub_ids_and_our_own_models_are_left_as_they_are(
    with_artifact: Workspace, tiny_reward_model: Path
) -> None:
    for reference in (str(tiny_reward_model), "owner/name", "smollm2", "tiny"):
        assert locate_model(with_artifact, reference)[0] == reference


def test_an_unknown_name_is_not_found(with_artifact: Workspace) -> None:
    with pytest.raises(NotFoundError, match="other-rm"):
        open_scorer("other-rm", workspace=with_artifact.root, device="cpu")
    with pytest.raises(NotFoundError, match=r"no model 'unlike'; the workspace has first-rm$"):
        open_scorer("unlike", workspace=with_artifact.root, device="cpu")
    with pytest.raises(NotFoundError, match=r"the workspace has first-rm$"):
        ModelConfig("unlike").located(with_artifact.root)
    assert ModelConfig("unlike", engine="vllm-http").located(with_artifact.root) == ("unlike", "unlike")
    assert located("smollm2", with_artifact.root) == "smollm2"


def test_a_bare_name_is_the_workspaces_whatever_folders_are_around(
    with_artifact: Workspace, tiny_reward_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first-rm").mkdir()
    monkeypatch.chdir(tmp_path)
    found, artifact = locate_model(with_artifact, "first-rm")
    assert found == str(tiny_reward_model)
    assert locate_model(with_artifact, "./first-rm") == ("./first-rm", None)
    assert locate_model(with_artifact, str(tiny_reward_model)) == (str(tiny_reward_model), artifact)
    assert artifact is not None


def test_urls_are_told_from_models() -> None:
    assert is_url("http://x")
    assert is_url("https://x:1/y")
    assert not is_url("httpx/model")
