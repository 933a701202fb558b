"""Pairs by a hierarchy of factors: the rule's oracle and symmetries, pairs of a workspace, planted weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from assay.cli.main import main
from assay.data.snapshots import Selection, create_snapshot, load_pairs
from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.curation.factor_pairs import FactorHierarchy, deciding, label_by_factors
from assay_rm_training.methods.probe import fit_head


def test_the_first_factor_beyond_its_margin_decides() -> None:
    first = np.array([[3.0, 0.2, 10], [1, 0.5, 10], [1, 0.5, 10], [1, np.nan, 10], [np.nan, 1, 1]])
    second = np.array([[3.0, 0.9, 5], [1, 0.6, 5], [1, 0.6, 9], [2, 0.1, 5], [1, 0, 1]])
    sides, levels = deciding(first, second, np.array([0, 0.3, 2]))
    assert sides.tolist() == [-1, 1, 0, -1, 0]
    assert levels.tolist() == [2, 3, 0, 1, 1]


FACTORS = arrays(np.float64, (4, 3), elements=st.integers(-2, 2).map(float))


@given(FACTORS, FACTORS, arrays(np.float64, 3, elements=st.floats(0, 2)))
def test_swapping_the_sides_turns_the_answer_round(a: np.ndarray, b: np.ndarray, margins: np.ndarray) -> None:  # type: ignore[type-arg]
    assert (deciding(a, b, margins)[0] == -deciding(b, a, margins)[0]).all()
    by_tuple = [(tuple(x) > tuple(y)) - (tuple(x) < tuple(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert deciding(a, b, np.zeros(3))[0].tolist() == by_tuple


def test_a_file_of_factors_names_what_is_wrong(tmp_path: Path) -> None:
    for text, said in (
        ("factors: []", "at least one factor"),
        ("factors: [{margin: 1}]", "one of rating, score, text"),
        ("factors: [{rating: a, margin: -1}]", "at least 0"),
        ("factors: [{rating: a, margin: 1, margin_std: 1}]", "either margin or margin_std"),
        ("factors: [{rating: a, colour: red}]", "colour"),
    ):
        path = tmp_path / "factors.yaml"
        path.write_text(text)
        with pytest.raises(BadInputError, match=said):
            FactorHierarchy.read(path)


def test_planted_weights_are_recovered_from_the_hierarchy(workspace: Workspace, tmp_path: Path) -> None:
    """Responses whose worth is 10 correctness + 3 depth + style: from the factors' order alone, a reward model on the
    pairs weighs them in that order; in the opposite order it does not find that worth."""
    rng = np.random.default_rng(0)
    worth = np.array([10.0, 3.0, 1.0])
    names = ("correctness", "depth", "style")
    factors: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    with (tmp_path / "rated.jsonl").open("w") as stream:
        for number in range(24):
            texts = [f"response {number}-{k}" for k in range(5)]
            values = rng.integers(0, 4, (5, 3)).astype(float)
            factors.update(zip(texts, values, strict=True))
            ratings = {name: values[:, column].tolist() for column, name in enumerate(names)}
            stream.write(json.dumps({"prompt": f"Number {number}?", "responses": texts, "ratings": ratings}) + "\n")
    with pytest.raises(SystemExit) as stop:
        main(["data", "import", str(tmp_path / "rated.jsonl"), "-w", str(workspace.root)])
    assert not stop.value.code

    def learnt(order: tuple[str, ...]) -> tuple[float, np.ndarray]:  # type: ignore[type-arg]
        """Agreement of the labels with the planted worth, and the weights of a Bradley-Terry head on the factors."""
        path = tmp_path / "factors.yaml"
        path.write_text(f"name: {order[0]}\nfactors: [{', '.join(f'{{rating: {n}, margin: 0}}' for n in order)}]")
        with start_run(workspace, "factors", {}) as run:
            report = label_by_factors(workspace, FactorHierarchy.read(path), run.id)
        assert report.decided + report.undecided == 24 * 10
        assert sum(report.by_factor.values()) == report.decided
        create_snapshot(workspace, "-".join(order), Selection(pools=("silver",)), None)
        pairs = load_pairs(workspace, "-".join(order))
        assert len(pairs) == report.decided
        d = np.array([factors[str(pair.chosen)] - factors[str(pair.rejected)] for pair in pairs])
        return float((d @ worth > 0).mean()), fit_head(d, np.ones(len(d)), l2=0.01)

    learnt(("style",))  # what a later hierarchy leaves out is no pair any more
    agreement, weights = learnt(names)
    assert agreement > 0.95
    assert weights[0] > 1.5 * weights[1] > 2 * weights[2] > 0
    assert weights @ worth / np.linalg.norm(weights) / np.linalg.norm(worth) > 0.95
    agreement, weights = learnt(names[::-1])
    assert agreement < 0.75
    assert weights @ worth / np.linalg.norm(weights) / np.linalg.norm(worth) < 0.8
