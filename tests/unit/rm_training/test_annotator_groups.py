"""Groups of annotators: the E step's oracle, EM's invariant, planted groups found again, votes that show none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from assay.errors import BadInputError
from assay_rm_training.data.annotator_votes import load_annotator_votes
from assay_rm_training.methods.annotator_groups import GroupsConfig, belonging, fit_groups


def planted(seed: int = 0, votes: int = 1500, annotators: int = 60) -> tuple[npt.NDArray[Any], ...]:
    """(differences, annotators, groups): the first third of the annotators wants something else."""
    rng = np.random.default_rng(seed)
    d, who = rng.standard_normal((votes, 8)), rng.integers(0, annotators, votes)
    groups = (np.arange(annotators) < annotators // 3).astype(int)
    z = (d * rng.standard_normal((2, 8))[groups[who]]).sum(axis=1)
    return np.where((rng.random(votes) < 1 / (1 + np.exp(-z)))[:, None], d, -d), who, groups


def test_an_annotator_belongs_to_the_head_that_explains_all_votes() -> None:
    # Reward 1 gives margin d, reward 2 gives -d; annotators with margins (2, 1), (-1.5, -0.5), (1, -0.2).
    margins, who = np.array([2.0, 1.0, -1.5, -0.5, 1.0, -0.2]), np.array([0, 0, 1, 1, 2, 2])
    z = np.stack([margins, -margins], axis=1)
    hard, likelihood = belonging(z, who, np.array([0.5, 0.5]), hard=True)
    assert hard.argmax(axis=1).tolist() == [0, 1, 0]
    assert likelihood == pytest.approx(-0.440190 - 0.675490 - 1.111401, abs=1e-5)
    soft, _ = belonging(z, who, np.array([0.5, 0.5]))
    assert soft[:, 0] == pytest.approx(1 / (1 + np.exp([-3.0, 2.0, -0.8])), abs=1e-6)


@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_planted_groups_are_found_and_no_round_lowers_the_likelihood(assignment: str) -> None:
    d, who, groups = planted()
    config = GroupsConfig(assignment=assignment, restarts=2, l2=0.01)  # type: ignore[arg-type]
    found = fit_groups(d, who.astype(np.int64), config, np.arange(len(d)))
    assert (found.belongs.argmax(axis=1) == groups).mean() >= 0.98
    assert found.shares == pytest.approx([2 / 3, 1 / 3], abs=0.02)
    assert np.diff(found.trace).min() >= -1e-6 * len(d)
    assert found.held_out is not None
    assert found.held_out.nll < found.held_out.single_nll - 0.05


def test_one_opinion_is_not_two_groups() -> None:
    d, who, groups = planted()
    alike = groups[who.astype(int)] == 0
    _, who = np.unique(who[alike], return_inverse=True)
    found = fit_groups(d[alike], who, GroupsConfig(restarts=2), np.arange(int(alike.sum())))
    assert found.held_out is not None
    assert found.held_out.single_nll < found.held_out.nll


def test_votes_of_somebody_of_whom_none_was_fitted_are_predicted_by_the_groups_shares() -> None:
    """Not by the first group alone, which nothing speaks for."""
    d, who, _ = planted()
    who = np.append(np.where(who == 0, 1, who), [0] * 20)
    pairs = np.where(who == 0, 0, 1)  # of which the first is held out
    d = np.vstack([d, d[:20]])
    config = GroupsConfig(assignment="hard", restarts=2, l2=0.01)
    found = fit_groups(d, who.astype(np.int64), config, pairs)
    assert found.held_out is not None
    assert found.held_out.votes == 20
    without = fit_groups(d[:-20], who[:-20].astype(np.int64) - 1, config)
    chances = 1 / (1 + np.exp(-d[-20:] @ without.heads.T))
    assert found.held_out.nll == pytest.approx(-np.log(chances @ without.shares).mean(), abs=0.02)


def test_bad_votes_are_refused() -> None:
    with pytest.raises(BadInputError, match="1 annotators cannot be 2 groups"):
        fit_groups(np.ones((3, 2)), np.zeros(3, dtype=np.int64), GroupsConfig())
    with pytest.raises(BadInputError, match="finite"):
        fit_groups(np.full((3, 2), np.nan), np.arange(3), GroupsConfig())
    with pytest.raises(BadInputError, match="at least 2"):
        GroupsConfig(groups=1)


def test_a_file_of_votes_names_its_bad_row(tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "Which?"}]
    row = {"prompt": prompt, "responses": ["x", "y"], "ratings": {"votes": [{"annotator": "w1", "value": "B"}]}}
    single = {"prompt": prompt, "chosen": "x", "rejected": "y", "annotator": "w2"}
    path = tmp_path / "votes.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(single) + "\n")
    votes = load_annotator_votes(None, path)
    assert [(vote.annotator, vote.pair.chosen) for vote in votes] == [("w1", "y"), ("w2", "x")]
    path.write_text(json.dumps(row | {"ratings": {"votes": [{"value": "A"}]}}) + "\n")
    with pytest.raises(BadInputError, match=r"row 1.*annotator"):
        load_annotator_votes(None, path)


@pytest.mark.slow
def test_groups_planted_in_real_votes_are_found(shared_data: Path) -> None:
    """UKPConvArg1: a third of the busiest annotators says the opposite of what they said; surface features."""
    rows: list[npt.NDArray[np.float64]] = []
    votes: dict[str, list[tuple[int, int]]] = {}
    with gzip.open(shared_data / "ukpconvarg1_pairs.jsonl.gz", "rt") as stream:
        for number, line in enumerate(stream):
            row = json.loads(line)
            rows.append(np.subtract(*map(surface, row["responses"])))
            for vote in row["ratings"]["votes"]:
                if vote["value"] in ("A", "B"):
                    votes.setdefault(vote["annotator"], []).append((number, 1 if vote["value"] == "A" else -1))
    busiest = sorted(votes, key=lambda name: (-len(votes[name]), name))[:60]
    opposite = np.random.default_rng(3).random(60) < 1 / 3
    who = np.array([i for i, name in enumerate(busiest) for _ in votes[name]])
    pairs, signs = np.array([vote for name in busiest for vote in votes[name]]).T
    d = np.array(rows)[pairs] * (signs * np.where(opposite[who], -1, 1))[:, None]
    found = fit_groups(d, who, GroupsConfig(restarts=2, l2=0.01), pairs)
    assert (found.belongs.argmax(axis=1) == opposite).mean() >= 0.95
    assert found.held_out is not None
    assert found.held_out.accuracy > found.held_out.single_accuracy + 0.05


def surface(text: str) -> npt.NDArray[np.float64]:
    words = text.split()
    marks = [text.count(mark) / (1 + len(words)) for mark in ",.?!"]
    return np.array([np.log1p(len(text)), np.log1p(len(words)), len({*words}) / (1 + len(words)), *marks])
