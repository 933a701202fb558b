"""Length bias and its correction against the reference numbers, the fits' properties, scoring under a correction."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.models.length_correction import LengthCorrection
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay_rm_training.length_bias.fit import (
    ScoredLengths,
    corrected,
    effect_of,
    fit_correction,
    fit_line,
    fit_lowess,
)
from assay_rm_training.length_bias.measure import correlation, length_bias
from assay_serving.engines.length_corrected import LengthCorrectedScorer, response_length
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

LENGTHS = np.array([100, 200, 300, 400, 500], dtype=float)
REWARDS = np.array([0.5, 1.0, 0.9, 1.8, 2.0])


def line_of(lengths: np.ndarray, rewards: np.ndarray, **more: object) -> LengthCorrection:  # type: ignore[type-arg]
    return LengthCorrection("line", "linear", curves={"": fit_line(lengths, rewards)}, **more)  # type: ignore[arg-type]


def test_card_A13_line() -> None:
    (x0, y0), (x1, y1) = fit_line(LENGTHS, REWARDS)
    slope = (y1 - y0) / (x1 - x0)
    assert slope == pytest.approx(0.0038)
    assert y0 - slope * x0 == pytest.approx(0.1)
    correction = line_of(LENGTHS, REWARDS)
    left = np.array([correction.corrected(r, n) for r, n in zip(REWARDS, LENGTHS, strict=True)])
    assert left.tolist() == pytest.approx([0.02, 0.14, -0.34, 0.18, 0.0], abs=1e-9)
    assert float(left @ (LENGTHS - 300)) == pytest.approx(0.0, abs=1e-9)
    assert correction.expected(700) == pytest.approx(0.1 + 0.0038 * 700)  # the line goes on


def test_card_A13_penalty_and_ceiling() -> None:
    penalty = LengthCorrection("short", "penalty")
    assert penalty.corrected(0.0, 450) == pytest.approx(-1.5)
    assert penalty.corrected(1.0, 300) == 1.0
    assert replace(penalty, ceiling=5.0).corrected(7.0, 450) == pytest.approx(3.5)


rows = st.lists(st.tuples(st.floats(-3, 3), st.integers(1, 400)), min_size=4, max_size=40)


@given(rows)
def test_a_line_leaves_no_correlation_on_its_own_set(found: list[tuple[float, int]]) -> None:
    rewards, lengths = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    correction = line_of(lengths, rewards)
    left = np.array([correction.corrected(r, n) for r, n in zip(rewards, lengths, strict=True)])
    assert abs(float((left - left.mean()) @ (lengths - lengths.mean()))) < 1e-6 * max(
        1.0, float(lengths.var()) * len(left)
    )


@settings(max_examples=25)
@given(rows, st.floats(0, 1), st.sampled_from(["linear", "lowess"]))
def test_equal_lengths_keep_their_order_and_no_mixing_changes_nothing(
    found: list[tuple[float, int]], mixing: float, form: str
) -> None:
    rewards, lengths = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    fit = fit_line if form == "linear" else fit_lowess
    correction = LengthCorrection("c", form, curves={"": fit(lengths, rewards)}, mixing=mixing)  # type: ignore[arg-type]
    at = float(lengths[0])
    assert correction.corrected(1.0, at) - correction.corrected(0.0, at) == pytest.approx(1.0)
    assert replace(correction, mixing=0.0).corrected(0.7, at) == 0.7
    again = LengthCorrection.from_dict(json.loads(json.dumps(asdict(correction))))
    assert (again, again.id) == (correction, correction.id)
    assert all(np.isfinite(y) for _, y in correction.curves[""])


def test_lowess_follows_a_curve_that_no_line_does() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.uniform(10, 1000, 800)
    truth = 2 * np.sqrt(lengths / 1000) - 1
    rewards = truth + rng.normal(0, 0.3, 800)
    curved = LengthCorrection("c", "lowess", curves={"": fit_lowess(lengths, rewards)})
    gaps = [abs(curved.expected(n) - (2 * np.sqrt(n / 1000) - 1)) for n in (50, 200, 500, 900)]
    straight = line_of(lengths, rewards)
    assert max(gaps) < 0.12
    assert max(gaps) < abs(straight.expected(20) - (2 * np.sqrt(0.02) - 1))
    assert curved.expected(5000) == curved.expected(1000)  # it does not go on past what it saw


def made_pairs(n: int, bias: float, seed: int, domain_bias: float = 0.0) -> ScoredLengths:
    """Quality decides the label; the reward is quality + bias * length (+ more of it in domain "b")."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(0, 1, (2, n))
    lengths = rng.integers(50, 600, (2, n)).astype(float)
    domains = ["a" if i % 2 else "b" for i in range(n)]
    extra = np.array([domain_bias if d == "b" else 0.0 for d in domains])
    rewards = quality + (bias + extra) * lengths / 100
    first = quality[0] > quality[1]
    order = np.where(first, 0, 1), np.where(first, 1, 0)
    at = np.arange(n)
    return ScoredLengths(
        (rewards[order[0], at], rewards[order[1], at]),
        (lengths[order[0], at], lengths[order[1], at]),
        [f"p-{i}" for i in range(n)],
        domains,
    )


def test_the_report_sees_a_bias_and_none_where_there_is_none() -> None:
    scored = made_pairs(600, 0.8, 1)
    found = length_bias(scored.rewards, scored.lengths, scored.groups)
    assert found.overall is not None
    assert found.overall.value > 0.5
    assert found.given_label is not None
    assert found.given_label.interval is not None
    assert found.given_label.interval.low > 0.5
    assert found.slope is not None
    assert found.slope.value == pytest.approx(0.8, abs=0.1)
    assert found.chosen_longer is not None
    assert found.chosen_shorter is not None
    assert found.chosen_longer.value > found.chosen_shorter.value + 0.2
    assert found.longer_wins is not None
    assert found.longer_chosen is not None
    assert found.longer_wins.value > 0.65
    assert found.longer_chosen.value == pytest.approx(0.5, abs=0.06)
    fair = length_bias(*(lambda s: (s.rewards, s.lengths, s.groups))(made_pairs(600, 0.0, 2)))
    assert fair.given_label is not None
    assert fair.given_label.interval is not None
    assert fair.given_label.interval.low < 0 < fair.given_label.interval.high
    json.dumps(found.to_dict())


def test_figures_that_do_not_exist_are_none() -> None:
    same = np.array([5.0, 5.0])
    found = length_bias((np.array([1.0, 2.0]), np.array([0.0, 3.0])), (same, same), ["p", "q"])
    assert (found.overall, found.slope, found.longer_wins, found.chosen_longer) == (None, None, None, None)
    assert found.equal is not None
    assert found.equal.value == 0.5
    assert correlation(same, np.array([1.0, 2.0])) is None
    with pytest.raises(BadInputError, match="no scored pairs"):
        length_bias((np.array([]), np.array([])), (np.array([]), np.array([])), [])


def test_taking_a_false_length_off_helps_on_prompts_the_fit_has_not_seen() -> None:
    scored = made_pairs(600, 0.8, 3)
    for form in ("linear", "lowess"):
        template = fit_correction(scored, form, name="c", unit="characters")
        effect = effect_of(scored, template, per_domain=False)
        assert effect.interval is not None
        assert effect.interval.low > 0.05
        assert effect.after == pytest.approx(effect.before + effect.change)
        assert effect.bias_after.within_prompt is not None
        assert abs(effect.bias_after.within_prompt.value) < 0.1
        assert effect.by_mixing[0.0] == effect.before
        assert effect.by_mixing[1.0] == effect.after
        json.dumps(effect.to_dict())


def test_a_curve_of_each_domain_where_the_bias_differs() -> None:
    scored = made_pairs(800, 0.0, 4, domain_bias=1.2)
    one = fit_correction(scored, "linear", name="one")
    each = fit_correction(scored, "linear", name="each", per_domain=True)
    assert set(one.curves) == {""}
    assert set(each.curves) == {"", "a", "b"}
    accuracy = {c.name: float(np.mean(np.greater(*corrected(scored, c)))) for c in (one, each)}
    assert accuracy["each"] > accuracy["one"] + 0.02


def test_scores_under_a_correction_are_asked_for_by_name(tiny_reward_model: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "rm"
    shutil.copytree(tiny_reward_model, folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    line = line_of(LENGTHS, REWARDS, unit="tokens")
    line = replace(line, calibration=Calibration(2.0, 0.1, "gold", 4))
    spec.calibrated(Calibration(1.0, 0.0, "gold", 4)).corrected(line).write(folder)
    assert RewardModelSpec.read(folder).length_corrections == (line,)  # type: ignore[union-attr]
    item = ScoreItem((Message("user", "Name a metal."),), "Gold.")
    plain, under = (
        load_scorer(ModelConfig(str(folder), device="cpu")),
        load_scorer(ModelConfig(str(folder), device="cpu", correct="line")),
    )
    [raw], [found] = plain.score([item]), under.score([item])
    assert isinstance(raw, Score)
    assert isinstance(found, Score)
    assert response_length(item, "tokens", plain.renderer) == len("Gold.")  # type: ignore[attr-defined]  # bytes
    assert found.reward == pytest.approx(line.corrected(raw.reward, 5))
    assert found.version == f"{raw.version}+{line.id}" == under.info.version
    assert found.probability == line.calibration.probability(found.reward)  # type: ignore[union-attr]
    assert raw.calibration != found.calibration
    with pytest.raises(BadInputError, match="no length correction 'none'"):
        load_scorer(ModelConfig(str(folder), device="cpu", correct="none"))
    with pytest.raises(BadInputError, match="no domain 'code'"):
        load_scorer(ModelConfig(str(folder), device="cpu", correct="line:code"))
    del under.scorer.renderer  # type: ignore[attr-defined]  # as a remote scorer, which has none
    with pytest.raises(BadInputError, match="has no tokenizer"):
        LengthCorrectedScorer(under.scorer, line)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "wrong",
    [{"name": "a b"}, {"mixing": 1.5}, {"form": "cubic"}, {"unit": "words"}, {"form": "linear"}, {"rate": -1.0}],
)
def test_wrong_corrections_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        LengthCorrection(**{"name": "c", "form": "penalty", **wrong})  # type: ignore[arg-type]
