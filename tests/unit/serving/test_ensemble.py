"""An ensemble as a scorer: one scale, its members' spread as uncertainty, failures that never shrink it, its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult, margin_deviation, score_from_dict
from assay_serving.engines.ensemble import EnsembleMember, EnsembleScorer, EnsembleSpec, standardised_members
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ModelInfo, ScoreItem

PROMPT = (Message("user", "q"),)


class Letters:
    """Scores by the number of one letter; cannot score a `?` where it is told so."""

    def __init__(self, letter: str, *, scale: float = 1.0, breaks: bool = False) -> None:
        self.letter, self.scale, self.breaks = letter, scale, breaks
        self.info = ModelInfo(letter, f"v-{letter}", "scalar", "t", 100, False, "passed", "float32", "cpu")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        on_progress(len(items))
        return [
            ScoreFailure("too_long", "a question mark", self.letter)
            if self.breaks and "?" in item.response
            else Score(
                self.scale * item.response.count(self.letter),
                self.letter,
                self.info.version,
                "t",
                tokens=len(item.response),
                truncated="~" in item.response,
            )
            for item in items
        ]


def items(*responses: str) -> list[ScoreItem]:
    return [ScoreItem(PROMPT, response) for response in responses]


def raw(combine: str = "mean") -> EnsembleSpec:
    return EnsembleSpec((EnsembleMember("a"), EnsembleMember("b")), combine, scale="raw")  # type: ignore[arg-type]


def test_combined_reward_and_spread() -> None:
    done: list[int] = []
    scorer = EnsembleScorer(raw(), [Letters("a"), Letters("b")], name="both")
    first, second = scorer.score(items("aab", "ab~"), done.append)
    assert isinstance(first, Score)
    assert isinstance(second, Score)
    assert (first.reward, first.uncertainty, first.model, first.truncated) == (1.5, 0.5, "both", False)
    assert (second.reward, second.uncertainty, second.truncated) == (1.0, 0.0, True)
    assert sum(done) == 2
    assert [(part.name, part.reward, part.value, part.model) for part in first.parts] == [
        ("member-0", 2, 2.0, "a"),
        ("member-1", 1, 1.0, "b"),
    ]
    assert (first.members, second.members) == ((2.0, 1.0), (1.0, 1.0))
    assert margin_deviation(first, second) == 0.5  # of 1 and 0
    assert margin_deviation(replace(first, parts=()), second) == 0.5  # hypot of 0.5 and 0
    assert margin_deviation(first, replace(first, model="again")) == 0.0


class Rated(Letters):
    """With the counts of letters as named ratings."""

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        names = {"warmth": self.scale, "depth": self.scale + 1, f"of {self.letter} alone": 1.0}
        names["critique-0"] = 1.0  # of one member's own critique, and of another's
        return [
            replace(s, parts=tuple(ScorePart(n, f * s.reward, f * s.reward) for n, f in names.items()))
            if isinstance(s, Score)
            else s
            for s in super().score(items, on_progress)
        ]


def test_ratings_that_all_members_give_have_an_uncertainty_each() -> None:
    members = [Rated("a"), Rated("b", scale=3.0)]
    spec = EnsembleSpec(tuple(EnsembleMember(m.letter, 0.0, 1.0) for m in members), scale="raw")
    [score] = EnsembleScorer(spec, members, name="both").score(items("aabbb"))
    assert isinstance(score, Score)
    warmth, depth = ([2.0 * 1, 9.0 * 3], [2.0 * 2, 9.0 * 4])
    ratings = {part.name: (part.value, part.uncertainty) for part in score.parts if part.uncertainty is not None}
    assert ratings == {"warmth": (fmean(warmth), pstdev(warmth)), "depth": (fmean(depth), pstdev(depth))}
    assert score.members == (2.0, 9.0), "which a margin's deviation is taken of"
    assert score_from_dict(score.to_dict()) == score


def test_one_failing_member_fails_the_item_and_no_other() -> None:
    scorer = EnsembleScorer(raw(), [Letters("a"), Letters("b", breaks=True)], name="both")
    failed, kept = scorer.score(items("aa?", "ab"))
    assert isinstance(failed, ScoreFailure)
    assert (failed.code, failed.model) == ("too_long", "both")
    assert "member b" in failed.message
    assert isinstance(kept, Score)


def test_a_member_on_a_large_scale_does_not_decide_once_standardised() -> None:
    members = [Letters("a"), Letters("b", scale=100.0)]
    common = items("aab", "b", "aaabbb", "a", "bb?")
    measured, used = standardised_members(["a", "b"], members, common)
    assert used == 5
    assert [m.version for m in measured] == ["v-a", "v-b"]
    spec = EnsembleSpec(measured, "min", standardised_on="common")
    scores = EnsembleScorer(spec, members, name="e").score(common)
    rewards = [s.reward for s in scores if isinstance(s, Score)]
    other, _ = standardised_members(["a", "b"], [Letters("a"), Letters("b")], common)
    plain = EnsembleScorer(
        EnsembleSpec(other, "min", standardised_on="common"), [Letters("a"), Letters("b")], name="e"
    ).score(common)
    assert rewards == pytest.approx([s.reward for s in plain if isinstance(s, Score)])


def test_a_scale_needs_responses_that_differ_and_that_all_can_score() -> None:
    with pytest.raises(BadInputError, match="same reward"):
        standardised_members(["a", "z"], [Letters("a"), Letters("z")], items("a", "aa"))
    with pytest.raises(BadInputError, match="can score 1 of the 2"):
        standardised_members(["a", "b"], [Letters("a"), Letters("b", breaks=True)], items("ab", "aab?"))


def test_another_checkpoint_than_the_scale_was_measured_on_is_refused() -> None:
    spec = EnsembleSpec((EnsembleMember("a", 0, 1, "v-old"), EnsembleMember("b")), scale="raw")
    with pytest.raises(BadInputError, match="v-old"):
        EnsembleScorer(spec, [Letters("a"), Letters("b")], name="e")


def test_the_version_is_of_what_changes_scores() -> None:
    members = [Letters("a"), Letters("b")]
    version = EnsembleScorer(raw(), members, name="e").info.version
    calibrated = raw().calibrated(Calibration(1.0, 0.0, "x", 1))
    assert EnsembleScorer(calibrated, members, name="f").info.version == version
    assert EnsembleScorer(raw("min"), members, name="e").info.version != version
    assert EnsembleScorer(raw(), members[::-1], name="e").info.version != version


def test_the_file_is_read_as_written_and_its_members_load(tiny_reward_model: Path, tmp_path: Path) -> None:
    spec = EnsembleSpec(
        (EnsembleMember(str(tiny_reward_model), 0.1, 2.0), EnsembleMember(str(tiny_reward_model))),
        "uwo",
        standardised_on="gold",
        calibration=Calibration(2.0, 0.0, "gold", 5, method="isotonic", knots=((1.0, 0.7),)),
    )
    spec.write(tmp_path / "ensemble.yaml")
    assert EnsembleSpec.read(tmp_path / "ensemble.yaml") == spec
    for reference in (tmp_path, tmp_path / "ensemble.yaml"):
        scorer = open_scorer(ModelConfig(str(reference), device="cpu"))
        [score] = scorer.score(items("Gold."))
        assert isinstance(score, Score)
        assert score.uncertainty is not None
        assert score.probability is not None
        assert score.calibration == scorer.info.calibration == spec.calibration.id  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: reward", "kind: ensemble"),
        ("kind: ensemble\nmembers: [a]\nscale: raw", "at least two members"),
        ("kind: ensemble\nmembers: [a, b]", "on one scale"),
        ("kind: ensemble\nmembers: [a, b]\nscale: raw\ncombine: median", "median"),
        ("kind: ensemble\nmembers: [a, b]\nscale: raw\nwight: 2", "wight"),
        ("kind: [", "not an ensemble"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError, match=said) as caught:
        EnsembleSpec.read(path)
    assert "e.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)
