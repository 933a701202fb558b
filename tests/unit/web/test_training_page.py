"""The page of a reward-model training: what it shows of a run that has ended, has no evaluation, or has just begun."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay_rm_training.data.encoded_dataset import Tags
from assay_rm_training.training.eval_step import pair_figures
from assay_web.report.content import BarChart, Figures, LineChart, Report, Section, Table
from assay_web.report.pages.training import training_sections
from assay_web.report.render import render

CONFIG = {"config": {"metric": "accuracy", "keep": "best"}}


def steps(count: int) -> list[dict[str, Any]]:
    return [
        {
            "kind": "train",
            "step": n,
            "epoch": n / count,
            "loss": 1 / n,
            "accuracy": 0.5,
            "margin": 0.1,
            "lr": 1e-3,
            "grad_norm": 2.0,
            "clipped": 1.0,
            "items": 8,
            "tokens": 100,
            "computed_tokens": 80,
            "padded_share": 0.25,
            "shared_share": 0.4,
            "tokens_per_s": 10.0,
            "seconds_forward": 0.1,
            "peak_memory": 2**30,
            "seconds": float(n),
            "chosen_mean": 0.1,
            "chosen_std": 0.2,
            "rejected_mean": 0.0,
            "rejected_std": 0.2,
        }
        for n in range(1, count + 1)
    ]


def evaluation(step: int, right: int) -> dict[str, Any]:
    chosen = np.where(np.arange(10) < right, 1.0, -1.0)
    tags = [Tags("ab"[n % 2], "", str(n), 10 + n, 15, None) for n in range(10)]
    return {"kind": "eval", "step": step, "items": 10, "loss": 0.5, **pair_figures(chosen, np.zeros(10), tags, seed=0)}


def blocks(sections: list[Section], title: str) -> list[Any]:
    return [block for section in sections if section.title == title for block in section.blocks]


def test_an_evaluated_run() -> None:
    rows = [*steps(4), evaluation(2, 8), evaluation(4, 6)]
    sections = training_sections(rows, CONFIG)
    assert [section.title for section in sections] == [
        "In short",
        "Curves",
        "Held out",
        "Optimiser",
        "Speed and memory",
    ]
    (short,) = blocks(sections, "In short")
    assert isinstance(short, Figures)
    shown = {figure.label: (figure.value, figure.note) for figure in short.figures}
    assert shown["best step (kept)"] == (2, "accuracy 0.8000 of 2 evaluations")
    assert shown["held-out accuracy there"][0] == 0.8
    assert "choosing the longer (characters): 0.400" in shown["held-out accuracy there"][1]
    assert (shown["padding"][0], shown["computed once"][0], shown["clipped"][0]) == ("25.0 %", "40.0 %", "100 %")
    accuracy = next(block for block in blocks(sections, "Curves") if block.title == "Accuracy")
    held_out = accuracy.series[1]
    assert (list(held_out.x), list(held_out.y)) == ([2.0, 4.0], [0.8, 0.6])
    assert all(low < y < high for low, y, high in zip(held_out.low, held_out.y, held_out.high, strict=True))
    assert accuracy.note.startswith("The band is the 95 % interval (Wilson). The line across:")
    held = blocks(sections, "Held out")
    by_source = next(block for block in held if isinstance(block, BarChart))
    assert list(by_source.labels) == ["a (5)", "b (5)"]
    over_time = next(block for block in held if isinstance(block, LineChart))
    assert [list(series.y) for series in over_time.series] == [[0.8, 0.6], [0.8, 0.6]]
    table = next(block for block in held if isinstance(block, Table))
    assert len(table.rows) == 5  # two sources; longer, shorter, equal
    page = render(Report("run", sections))
    assert page.count("<svg") >= 12


def test_a_run_without_evaluations_and_one_that_has_just_begun() -> None:
    sections = training_sections(steps(3), {})
    assert [section.title for section in sections] == ["In short", "Curves", "Optimiser", "Speed and memory"]
    render(Report("run", sections))
    render(Report("run", training_sections([], CONFIG)))


def test_a_band_is_spoken_of_only_where_there_is_one() -> None:
    for evaluations in ([], [evaluation(2, 8)]):
        sections = training_sections([*steps(3), *evaluations], CONFIG)
        accuracy = next(block for block in blocks(sections, "Curves") if block.title == "Accuracy")
        assert "band" not in accuracy.note
        assert ("The line across" in accuracy.note) == bool(evaluations)


def test_an_evaluation_without_pairs_is_shown_by_its_loss() -> None:
    sections = training_sections([*steps(2), {"kind": "eval", "step": 2, "items": 3, "loss": 0.4}], CONFIG)
    (short,) = blocks(sections, "In short")
    assert ("best step (kept)", "nll 0.4000 of 1 evaluation") in {(f.label, f.note) for f in short.figures}
    render(Report("run", sections))
