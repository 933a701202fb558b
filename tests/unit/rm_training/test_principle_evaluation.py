"""Figures of judged responses against hand-computed ones, the calibration of P(Yes), the evaluation by command."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.spec import RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay.workspace import Workspace
from assay_rm_training.calibration.fitting import fit_judgments
from assay_rm_training.data.principle_rows import PrincipleRow, write_principle_rows
from assay_rm_training.evaluation.principle import evaluate_rows
from assay_rm_training.evaluation.principle_split import HeldOutRow, with_cells
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, ScoreItem


class Written:
    """A scorer that answers the number written in the response; nothing for one that says nothing."""

    info = ModelInfo("written", "v", "principle", "t", 100, False, "passed", "float32", "cpu")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        on_progress(len(items))
        return [self._one(item) for item in items]

    def _one(self, item: ScoreItem) -> ScoreResult:
        try:
            reward = float(str(item.response))
        except ValueError:
            return ScoreFailure("too_long", "no number")
        p = 1 / (1 + math.exp(-reward))
        return Score(reward, "written", "v", "t", 1, False, probability=p, principle=item.principle)


def row(prompt: str, response: str, principle: str, fulfilled: bool, rate: float | None = 0.8) -> HeldOutRow:
    turn = (Message("user", prompt),)
    return HeldOutRow(turn, response, principle, fulfilled, cell="unseen prompt, seen principle", base_rate=rate)


ROWS = [
    row("a", "2.0", "clarity", True),
    row("a", "-1.0", "clarity", False),
    row("b", "0.0", "clarity", True),  # exactly 0 is wrong
    row("b", "0.5", "depth", False, 0.3),
    row("c", "-0.5", "depth", False, 0.3),
    row("c", "?", "depth", True, 0.3),
]


def test_figures_by_hand() -> None:
    found = evaluate_rows(Written(), ROWS)
    assert (found.rows, found.scored, found.failures) == (6, 5, {"too_long": 1})
    assert found.overall.accuracy == pytest.approx(3 / 5)
    assert found.overall.baseline == pytest.approx(4 / 5)  # yes for clarity (2 of 3), no for depth (2 of 2)
    assert found.overall.yes_share == pytest.approx(2 / 5)
    assert {part.name: part.accuracy for part in found.principles} == {"clarity": pytest.approx(2 / 3), "depth": 0.5}
    assert found.macro_accuracy == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found.macro_baseline == pytest.approx((2 / 3 + 1) / 2)
    assert [part.base_rate for part in found.principles] == [0.8, 0.3]
    assert found.overall.gain is None  # of four prompts: undetermined
    logs = [0.126928, 0.313262, math.log(2), 0.974077, 0.474077]
    assert found.nll == pytest.approx(sum(logs) / 5, abs=1e-5)
    base = [-math.log(0.8), -math.log(0.2), -math.log(0.8), -math.log(0.7), -math.log(0.7)]
    assert found.baseline_nll == pytest.approx(sum(base) / 5)
    assert found.pairs is not None
    assert (found.pairs.pairs, found.pairs.accuracy) == (1, 1.0)  # prompt a under clarity


def test_answering_the_base_rate_gains_nothing() -> None:
    """The baseline against itself: a model whose reward is the base rate's log-odds."""
    rows = [row(f"p{n}", str(math.log(4.0)), "clarity", n % 5 > 0) for n in range(20)]
    found = evaluate_rows(Written(), rows)
    assert found.overall.accuracy == found.overall.baseline == 0.8
    assert found.overall.gain is None  # it differs nowhere
    assert found.nll == pytest.approx(found.baseline_nll)
    assert found.ece == pytest.approx(0.0, abs=1e-9)


def test_rows_of_unknown_training_have_no_baseline() -> None:
    plain = [PrincipleRow(r.prompt, r.response, r.principle, r.fulfilled) for r in ROWS]
    found = evaluate_rows(Written(), plain)
    assert found.overall.baseline is None
    assert found.macro_baseline is None
    assert found.cells == ()
    assert found.overall.accuracy == pytest.approx(3 / 5)


def test_nothing_to_evaluate_is_refused() -> None:
    with pytest.raises(BadInputError, match="no judged responses"):
        evaluate_rows(Written(), [])
    with pytest.raises(BadInputError, match="none of the 1 judged"):
        evaluate_rows(Written(), ROWS[-1:])


def test_the_fit_finds_the_curve_that_the_labels_were_drawn_from() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(1.0, 3.0, 20_000)
    labels = rng.random(20_000) < 1 / (1 + np.exp(-(rewards - 2.0) / 1.5))
    found = fit_judgments(rewards.tolist(), labels.tolist(), fitted_on="x")
    assert found.temperature == pytest.approx(1.5, rel=0.05)
    assert found.reference == pytest.approx(2.0, abs=0.1)
    # At the optimum the mean probability is the share of yes.
    assert np.mean([found.probability(r) for r in rewards]) == pytest.approx(labels.mean(), abs=1e-3)


def test_a_fit_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadInputError, match="all yes"):
        fit_judgments([1.0, 2.0], [True, True], fitted_on="x")
    with pytest.raises(BadInputError, match="does not make Yes more likely"):
        fit_judgments([1.0, 2.0, -1.0, -2.0], [False, False, True, True], fitted_on="x")
    separated = fit_judgments([1.0, 2.0, -1.0, -2.0], [True, True, False, False], fitted_on="x")
    assert 0 < separated.temperature < math.inf


def test_eval_of_a_principle_model_and_its_calibration(
    tiny_principle_model: Path, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = tmp_path / "judge", tmp_path / "rows.jsonl"
    shutil.copytree(tiny_principle_model, folder)
    from assay_serving.engines.principle import PrincipleScorer

    asked = [PrincipleRow((Message("user", f"Question {n % 7}?"),), f"Answer {n}", "Clarity", True) for n in range(20)]
    scores = PrincipleScorer.load(ModelConfig(str(folder), device="cpu")).score(
        [ScoreItem(r.prompt, r.response, r.principle) for r in asked]
    )
    rewards = [score.reward for score in scores if isinstance(score, Score)]
    middle = sorted(rewards)[10]
    rows = [
        PrincipleRow(r.prompt, r.response, r.principle, (reward >= middle) != (n == 3))
        for n, (r, reward) in enumerate(zip(asked, rewards, strict=True))
    ]
    write_principle_rows(data, rows)
    arguments = ["eval", "--model", str(folder), "--data", str(data), "-w", str(workspace.root)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--calibrate", "--json"])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    found = json.loads(out)
    assert found["overall"]["baseline"] is None  # its training is not known here
    assert found["fitted"]["pairs"] == 20
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.calibration is not None
    assert found["nll"] < 0.69
    assert found["agreement"] == 19 / 20
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    assert "Clarity" in capsys.readouterr().out


def test_cells_of_a_given_held_out_file() -> None:
    trained = [row("a", "1", "clarity", True)]
    held = [row("A ", "2", "Clarity", True), row("b", "2", "clarity", True), row("a", "2", "depth", True)]
    assert [found.cell for found in with_cells(trained, held)] == [
        "seen prompt, seen principle",
        "unseen prompt, seen principle",
        "seen prompt, unseen principle",
    ]


def test_principlebench_asks_a_principle_model_and_not_a_scalar_one(
    tiny_principle_model: Path, tiny_reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [
        PrincipleRow((Message("user", f"Question {n}?"),), text, principle, text == "Good.")
        for n in range(4)
        for text in ("Good.", "A bad one.")
        for principle in ("Clarity", "Brevity")
    ]
    write_principle_rows(data, rows)
    arguments = ["eval", "--bench", "principlebench", "--path", str(data), "--json", "--device", "cpu"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--model", str(tiny_principle_model), "--model", str(tiny_reward_model)])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    judge, scalar = json.loads(out)["models"]
    for found in (judge, scalar):
        assert found["counts"]["failed"] == 0
        assert found["counts"]["pairs"] == 8
        assert set(found["aggregates"]) == {
            "overall",
            "longer",
            "principle_mean",
            "principle/Clarity",
            "principle/Brevity",
        }
    # A scalar model cannot tell principles apart.
    assert scalar["aggregates"]["principle/Clarity"] == scalar["aggregates"]["principle/Brevity"]
