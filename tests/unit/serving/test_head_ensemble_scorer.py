"""An ensemble of heads as a model: its folder, one pass for all heads, parts, and the backbone it insists on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.score import Score, ScoreFailure, score_from_dict
from assay_serving.engines.aggregation import MemberAggregation
from assay_serving.engines.frozen_backbone import backbone_version
from assay_serving.engines.head_ensemble import (
    FILE,
    WEIGHTS,
    HeadEnsembleScorer,
    HeadEnsembleSpec,
    read_heads,
    write_heads,
)
from assay_serving.engines.heads import Heads, Posterior
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.model_reference import is_ensemble, kind_of, known_spec
from assay_serving.scorer import ScoreItem

PROMPT = (Message("user", "Which one?"),)
ITEMS = [ScoreItem(PROMPT, text) for text in ("A short one.", "Another, which is longer.", "", "Third")]


@pytest.fixture(scope="module")
def heads() -> Heads:
    from assay.models.loading import load_config

    width = load_config("tiny").hidden_size
    rng = np.random.default_rng(0)
    members, factor = rng.normal(size=(4, width)), 0.1 * rng.normal(size=(width, width))
    return Heads(members, rng.normal(size=width), Posterior(members.mean(axis=0), factor))


@pytest.fixture
def folder(tmp_path: Path, heads: Heads) -> Path:
    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_tokenizer

    folder = tmp_path / "heads"
    folder.mkdir()
    template = Renderer(load_tokenizer("tiny"), max_length=64).template_hash
    version, (k, width) = backbone_version("tiny"), heads.heads.shape
    weights = write_heads(folder, heads)
    spec = HeadEnsembleSpec("tiny", version, template, 64, k, width, "bootstrap", 0.1, 10, weights)
    spec.write(folder)
    return folder


def opened(folder: Path, **change: Any) -> HeadEnsembleScorer:
    if change:
        replace(HeadEnsembleSpec.read(folder), **change).write(folder)
    scorer = open_scorer(ModelConfig(str(folder), device="cpu"))
    assert isinstance(scorer, HeadEnsembleScorer)
    return scorer


def scores(scorer: HeadEnsembleScorer) -> list[Score]:
    return [score for score in scorer.score(ITEMS) if isinstance(score, Score)]


def test_what_is_written_is_read_again(folder: Path, heads: Heads) -> None:
    spec = HeadEnsembleSpec.read(folder)
    calibrated = replace(spec, calibration=Calibration(2.0, 0.5, "gold", 10), uncertainty={"pairs": 3})
    assert HeadEnsembleSpec.read(calibrated.write(folder)) == calibrated
    assert calibrated.version == spec.version != replace(spec, aggregation=MemberAggregation("min")).version
    again = read_heads(folder, spec)
    assert np.allclose(again.heads, heads.heads, rtol=1e-6)
    assert np.allclose(again.posterior.factor, heads.posterior.factor, rtol=1e-6)
    for reference in (folder, folder / FILE):
        assert (kind_of(str(reference)), is_ensemble(str(reference))) == ("head_ensemble", False)
        assert known_spec(str(reference)) is None


def test_scores_are_the_combined_rewards_of_the_heads_on_the_states_of_the_backbone(folder: Path, heads: Heads) -> None:
    by = {combine: scores(opened(folder, aggregation=MemberAggregation(combine))) for combine in ("mean", "min", "uwo")}
    scorer = opened(folder, aggregation=MemberAggregation())
    states = np.stack([f.vector for f in scorer.features(ITEMS) if not isinstance(f, ScoreFailure)])
    expected = heads.rewards(states.astype(np.float64))
    for row, (mean, lowest, uwo) in enumerate(zip(by["mean"], by["min"], by["uwo"], strict=True)):
        assert mean.members == pytest.approx(expected[row], rel=1e-5)
        assert [part.name for part in mean.parts] == ["member-0", "member-1", "member-2", "member-3"]
        assert mean.reward == pytest.approx(np.mean(mean.members))
        assert mean.uncertainty == pytest.approx(np.std(mean.members))
        assert lowest.reward == pytest.approx(min(mean.members))
        assert uwo.reward == pytest.approx(np.mean(mean.members) - 0.5 * np.var(mean.members))
        assert score_from_dict(mean.to_dict()) == mean
    assert len(by["mean"]) == len(ITEMS)


def test_layouts_and_batches_change_no_score(folder: Path) -> None:
    scorer = opened(folder)
    together = scores(scorer)
    alone = [scorer.score([item])[0] for item in ITEMS]
    for name, other in [("alone", alone), *((name, way.score(ITEMS)) for name, way in scorer.other_ways())]:
        for one, two in zip(together, other, strict=True):
            assert isinstance(two, Score), name
            assert two.members == pytest.approx(one.members, abs=1e-4), name


def test_only_a_mean_of_heads_gives_log_odds_and_a_calibration_gives_probabilities(folder: Path) -> None:
    assert opened(folder).info.bradley_terry
    scorer = opened(folder, aggregation=MemberAggregation("min"), calibration=Calibration(2.0, 0.5, "gold", 10))
    assert not scorer.info.bradley_terry
    (first, *_) = scores(scorer)
    assert first.probability == pytest.approx(1 / (1 + np.exp(-(first.reward - 0.5) / 2.0)))
    assert isinstance(scorer.score([ScoreItem(PROMPT, "word " * 100)])[0], ScoreFailure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"backbone_version": "older"},
            r"heads: its heads were fitted on tiny of version older, which is now \w+; fit",
        ),
        ({"weights": "other"}, "is not the file that heads.yaml describes"),
        ({"width": 3}, "heads are"),
        ({"members": 5}, "heads are"),
    ],
)
def test_what_does_not_fit_together_is_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        opened(folder, **change)


def test_broken_files_are_refused_by_name(folder: Path, heads: Heads) -> None:
    bad = replace(heads, heads=np.full_like(heads.heads, np.nan))
    weights = write_heads(folder, bad)
    with pytest.raises(BadInputError, match="not finite"):
        opened(folder, weights=weights)
    (folder / WEIGHTS).write_bytes(b"no")
    with pytest.raises(BadInputError, match="no heads"):
        opened(folder)
    (folder / FILE).write_text("kind: head_ensemble\nmembers: 1\n")
    with pytest.raises(BadInputError, match="not an ensemble of heads"):
        opened(folder)
