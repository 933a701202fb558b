"""What a name stands for: a folder, an artifact of the workspace, one of our models, nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.errors import BadInputError, NotFoundError
from assay.models.loading import resolve_model
from assay.runs.progress_bar import Advance, silent
from assay.runs.record import locate_model, start_run
from assay.score import Score, ScoreResult
from assay.workspace import Workspace
from assay_serving.engines.engine import ModelLoader
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader, load_scorer, open_scorer
from assay_serving.model_reference import is_url, located
from assay_serving.scorer import ModelInfo, ScoreItem


@pytest.fixture
def with_artifact(workspace: Workspace, tiny_reward_model: Path) -> Workspace:
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "first-rm", tiny_reward_model, content_hash="h")
    return workspace


def test_an_artifact_is_found_by_name_and_scores_under_it(with_artifact: Workspace, tiny_reward_model: Path) -> None:
    assert locate_model(with_artifact, "first-rm")[0] == str(tiny_reward_model)
    scorer = open_scorer(
        ModelConfig("first-rm", device="cpu"),
        workspace=with_artifact.root,
    )
    assert scorer.info.name == "first-rm"


def test_folders_hub_ids_and_our_own_models_are_left_as_they_are(
    with_artifact: Workspace, tiny_reward_model: Path
) -> None:
    for reference in (str(tiny_reward_model), "owner/name", "smollm2", "tiny"):
        assert locate_model(with_artifact, reference)[0] == reference


def test_an_unknown_name_is_not_found(with_artifact: Workspace) -> None:
    with pytest.raises(NotFoundError, match="other-rm"):
        open_scorer(
            ModelConfig("other-rm", device="cpu"),
            workspace=with_artifact.root,
        )
    with pytest.raises(NotFoundError, match=r"no model 'unlike'; the workspace has first-rm$"):
        open_scorer(
            ModelConfig("unlike", device="cpu"),
            workspace=with_artifact.root,
        )
    for slip, meant in (("smolm2", "smollm2"), ("tny", "tiny")):
        with pytest.raises(NotFoundError, match=rf"the workspace has first-rm; did you mean {meant}\?$"):
            open_scorer(ModelConfig(slip, device="cpu"), workspace=with_artifact.root)
        with pytest.raises(NotFoundError, match=rf"not one of .*; did you mean {meant}\?$"):
            resolve_model(slip)
    with pytest.raises(NotFoundError, match=r"the workspace has first-rm$"):
        Loader(with_artifact.root).resolve(ModelConfig("unlike"))
    served = Loader(with_artifact.root).resolve(ModelConfig("unlike", engine="vllm-http"))
    assert (served.reference, served.name) == ("unlike", "unlike")
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


class OwnEngine:
    """As a third party writes one: another engine, or the scorer of another kind of model."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.info = ModelInfo(config.name, "v1", "scalar", "t", 100, False, "passed", "float32", "cpu")

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader) -> OwnEngine:
        return cls(config)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return [Score(float(len(item.response)), self.info.name, "v1", "t", 1, False) for item in items]


def test_an_engine_and_a_kind_of_ones_own(tmp_path: Path) -> None:
    target = f"{__name__}:OwnEngine"
    engine = load_scorer(ModelConfig("anything", engine=target, engine_options={"a": 1}))
    assert isinstance(engine, OwnEngine)
    assert engine.config.engine_options == {"a": 1}
    assert isinstance(load_scorer(ModelConfig("anything", served_as="own", kind=target)), OwnEngine)
    (tmp_path / "own.yaml").write_text(
        f"kind: composed\nparts: [{{name: a, model: thing, model_kind: '{target}'}}]\n"
        "combine: {kind: weighted_sum, weights: {a: 2}}\n"
    )
    (score,) = load_scorer(ModelConfig(str(tmp_path / "own.yaml"))).score([ScoreItem((), "four")])
    assert isinstance(score, Score)
    assert score.reward == 8.0
    with pytest.raises(BadInputError, match=r"no engine is named 'vlm'; did you mean vllm"):
        load_scorer(ModelConfig("anything", engine="vlm"))
    with pytest.raises(BadInputError, match="is no engine: it has no load"):
        load_scorer(ModelConfig("anything", engine="pathlib:PurePath"))


def test_a_scorer_in_a_file_beside_the_description(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from assay.score import Score\n"
        "class Fixed:\n"
        "    def __init__(self, info): self.info = info\n"
        "    def score(self, items, on_progress=None): return [Score(3.0, 'own', 'v1', 't', 1, False) for _ in items]\n"
        "    @classmethod\n"
        "    def load(cls, config, loader):\n"
        "        from assay_serving.scorer import ModelInfo\n"
        "        return cls(ModelInfo(config.name, 'v1', 'scalar', 't', 100, False, 'passed', 'float32', 'cpu'))\n"
    )
    (tmp_path / "reward.yaml").write_text(
        "kind: composed\nparts: [{name: a, model: thing, model_kind: 'own.py:Fixed'}]\n"
        "combine: {kind: weighted_sum, weights: {a: 2}}\n"
    )
    (score,) = load_scorer(ModelConfig(str(tmp_path / "reward.yaml"))).score([ScoreItem((), "x")])
    assert isinstance(score, Score)
    assert score.reward == 6.0


def test_a_reward_without_a_model_scores_without_torch(rule_reward: Path) -> None:
    """Its server takes a third of the memory, and starts in a third of the time."""
    program = f"""
import sys
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader
from assay_serving.scorer import ScoreItem
from assay.domain import Message
scorer = Loader().open_served(ModelConfig({str(rule_reward)!r}, device="cpu"))
(result,) = scorer.score([ScoreItem((Message("user", "Name a metal."),), "Gold.")])
print(result.reward, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", "False"]


def test_a_reward_without_a_model_is_refused_a_device_and_a_format_that_are_not_there(rule_reward: Path) -> None:
    with pytest.raises(BadInputError, match="device 'abacus' is not available here"):
        load_scorer(ModelConfig(str(rule_reward), device="abacus"))
    with pytest.raises(BadInputError, match="unknown number format 'float7'"):
        load_scorer(ModelConfig(str(rule_reward), dtype="float7"))
