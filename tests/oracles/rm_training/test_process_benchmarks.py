"""ProcessBench's protocol and best of n by steps: against the official scorer's lines, by hand, with a real model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import BadInputError
from assay.models.readings import Stepwise
from assay_rm_training.benchmarks.catalogue import benchmark
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.protocols.processbench import BENCHMARK, BEST_OF_N, first_error
from assay_rm_training.benchmarks.report import BenchmarkReport, report
from assay_rm_training.benchmarks.scoring import score_items
from assay_serving.engines.process_reward import StepScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig


def solution(number: int, part: str, label: int, steps: int = 3) -> dict[str, Any]:
    row = {"id": f"{part}-{number}", "generator": "g", "problem": f"{part} {number}?", "label": label}
    return {**row, "steps": [f"step {n}" for n in range(steps)], "final_answer_correct": label == -1}


def read(rows: Sequence[dict[str, Any]], bench: Any = BENCHMARK) -> list[BenchmarkItem]:
    items = [bench.read(Record("file.jsonl", n, row)) for n, row in enumerate(rows, start=1)]
    return [replace(item, key=item.id) for item in items if item is not None]


def numbers(measured: BenchmarkReport) -> dict[str, float]:
    return {name: figure for name, figure in measured.aggregates.items() if figure is not None}


def official(rows: Sequence[dict[str, Any]], scores: Sequence[Sequence[float]]) -> dict[str, float]:
    """The lines of the official scorer, with argmax over two labels as log-odds above 0; in per cent."""
    f1_scores = {}
    for config in dict.fromkeys(row["id"].rpartition("-")[0] for row in rows):
        res_data = []
        for row, row_scores in zip(rows, scores, strict=True):
            if row["id"].startswith(config):
                zeros = np.nonzero(np.array([int(score > 0) for score in row_scores]) == 0)[0]
                prediction = int(zeros[0]) if len(zeros) else -1
                res_data.append((row["label"], prediction == row["label"]))
        acc1 = np.mean([match for label, match in res_data if label != -1]) * 100
        acc2 = np.mean([match for label, match in res_data if label == -1]) * 100
        f1_scores[config] = float(2 * acc1 * acc2 / (acc1 + acc2))
    return {**f1_scores, "average": float(np.mean(list(f1_scores.values())))}


def test_figures_are_the_official_scorers() -> None:
    generator = np.random.default_rng(0)
    rows = [solution(n, part, int(generator.integers(-1, 3))) for part in ("gsm8k", "math") for n in range(40)]
    scores = [
        [float(generator.normal(1.5 if row["label"] in (-1, *range(n + 1, 3)) else -1)) for n in range(3)]
        for row in rows
    ]
    expected = official(rows, scores)
    measured = report(BENCHMARK, read(rows), [Outcome(tuple(row)) for row in scores], model="m")
    found, interval = numbers(measured), measured.intervals["f1"]
    assert 100 * found["f1"] == pytest.approx(expected["average"])
    for part in ("gsm8k", "math"):
        assert 100 * found[f"{part}/f1"] == pytest.approx(expected[part])
    assert interval is not None
    assert interval.low < found["f1"] < interval.high
    shifted = [Outcome(tuple(score + 5 for score in row)) for row in scores]
    tuned = numbers(report(BENCHMARK, read(rows), shifted, model="m"))
    assert tuned["f1"] == 0  # everything is called right: no error is found
    assert tuned["f1_tuned"] == pytest.approx(found["f1_tuned"])
    assert tuned["threshold"] == pytest.approx(found["threshold"] + 5)


def test_by_hand() -> None:
    """Errors at 1 and 2, one found; right solutions two, one called right: accuracies .5 and .5, F1 .5."""
    rows = [solution(0, "gsm8k", 1), solution(1, "gsm8k", 2), solution(2, "gsm8k", -1), solution(3, "gsm8k", -1)]
    outcomes = [Outcome(row) for row in ((1.0, -1.0, 1.0), (1.0, -1.0, -1.0), (1.0, 2.0, 3.0), (1.0, 0.0, 1.0))]
    outcomes.append(Outcome(failure="too_long"))
    found = report(BENCHMARK, read([*rows, solution(4, "gsm8k", 0)]), outcomes, model="m")
    values = found.aggregates
    assert (values["gsm8k/error"], values["gsm8k/correct"], values["f1"]) == (0.5, 0.5, 0.5)
    assert first_error([1.0, 0.0]) == 1
    (item,) = read([rows[0]])
    assert (item.gold, item.responses[1]) == ((1.0, 0.0, 0.0), "step 0\n\nstep 1")
    wrong: dict[str, Any]
    for wrong in ({"label": 3}, {"label": True}, {"steps": []}, {"steps": [1]}):
        with pytest.raises(BadInputError, match=next(iter(wrong))):
            read([rows[0] | wrong])


def test_best_of_n_by_each_aggregation() -> None:
    row = {
        "prompt": "p",
        "responses": [
            {"steps": ["a", "b"], "reward": 0.0},
            {"steps": ["c", "d", " "], "reward": 1.0},
            {"steps": ["e"], "reward": 0.5},
        ],
    }
    items = read([row, {"prompt": "q", "responses": row["responses"][:1]}], BEST_OF_N)
    assert len(items) == 1  # one response leaves nothing to choose
    outcome = Outcome((5.0, -1.0, 0.5, 0.5, 0.2))
    found = report(BEST_OF_N, items, [outcome], model="m").aggregates
    assert found == pytest.approx({"min": 1.0, "last": 1.0, "product": 0.5, "mean": 0.0, "random": 0.5, "oracle": 1.0})
    two = [*items, replace(items[0], key="failed")]
    assert report(BEST_OF_N, two, [outcome, Outcome(failure="too_long")], model="m").sizes["min"] == 1


def test_a_process_model_reads_once_and_another_reads_each_beginning(tiny_reward_model: Path) -> None:
    plain = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    scorer = StepScorer(plain.model, plain.renderer, replace(plain.spec, stepwise=Stepwise("\n\n")), name="prm")
    items = read([solution(0, "gsm8k", 1), solution(1, "gsm8k", -1, steps=2)])
    by_steps, by_beginnings = score_items(scorer, items), score_items(plain, items)
    for one, other in zip(by_steps, by_beginnings, strict=True):
        assert one.scores is not None
        assert other.scores is not None
        assert one.scores[-1] == pytest.approx(other.scores[-1], abs=1e-5)  # the whole text, read at its end
        assert len(one.scores) == len(other.scores)
    assert benchmark("ProcessBench") is BENCHMARK
