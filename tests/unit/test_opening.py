"""What a name stands for: a folder, an artifact of the workspace, one of our models, nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import NotFoundError
from assay.runs import start_run
from assay.workspace import Workspace
from assay_serving.opening import is_url, locate_model, open_scorer


@pytest.fixture
def with_artifact(workspace: Workspace, tiny_reward_model: Path) -> Workspace:
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "first-rm", tiny_reward_model, content_hash="h")
    return workspace


def test_an_artifact_is_found_by_name_and_scores_under_it(with_artifact: Workspace, tiny_reward_model: Path) -> None:
    assert locate_model("first-rm", with_artifact.root) == str(tiny_reward_model)
    scorer = open_scorer("first-rm", workspace=with_artifact.root, device="cpu")
    assert scorer.info.name == "first-rm"


def test_folders_hub_ids_and_our_own_models_are_left_as_they_are(
    with_artifact: Workspace, tiny_reward_model: Path
) -> None:
    for reference in (str(tiny_reward_model), "owner/name", "smollm2", "tiny"):
        assert locate_model(reference, with_artifact.root) == reference


def test_an_unknown_name_is_not_found(with_artifact: Workspace) -> None:
    with pytest.raises(NotFoundError, match="other-rm"):
        locate_model("other-rm", with_artifact.root)


def test_urls_are_told_from_models() -> None:
    assert is_url("http://x")
    assert is_url("https://x:1/y")
    assert not is_url("httpx/model")
