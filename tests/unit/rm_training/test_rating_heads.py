"""Heads of ratings on frozen states: the exact optimum, missing ratings, planted ratings with their uncertainty."""

from __future__ import annotations

import numpy as np
import pytest

from assay.errors import BadInputError
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.rating_heads import fit_rating_heads, ridge

RNG = np.random.default_rng(0)


def test_ridge_is_the_optimum_of_each_rating_over_the_rows_that_have_it() -> None:
    x, y, v = RNG.normal(size=(30, 5)), RNG.normal(size=(30, 3)), RNG.uniform(0.5, 2.0, size=30)
    y[:10, 1] = np.nan
    for l2, w in zip((0.1, 1.0), ridge(x, y, v, (0.1, 1.0)), strict=True):
        for column in range(3):
            rows = ~np.isnan(y[:, column])
            shares = v[rows] / v[rows].sum()
            left = (x[rows] * shares[:, None]).T @ x[rows] + l2 * np.eye(5)
            expected = np.linalg.solve(left, (x[rows] * shares[:, None]).T @ y[rows, column])
            assert w[:, column] == pytest.approx(expected)


def test_planted_ratings_are_recovered_and_what_was_rated_less_is_less_certain() -> None:
    x = RNG.normal(size=(400, 8)) + 3.0
    y = np.stack([20 + 4 * x[:, 0], -1 + 0.5 * x[:, 1]], axis=1) + RNG.normal(scale=0.1, size=(400, 2)) * [4.0, 0.5]
    y[40:, 1] = np.nan
    heads, ratings = fit_rating_heads(x, y, np.ones(400), np.arange(400), HeadsConfig("bootstrap", 16), ("a", "b"))
    new = RNG.normal(size=(200, 8)) + 3.0
    said = heads.rewards(new).reshape(200, 16, 2) + np.array(ratings.offsets)
    truth = np.stack([20 + 4 * new[:, 0], -1 + 0.5 * new[:, 1]], axis=1)
    error = np.sqrt(np.square(said.mean(axis=1) - truth).mean(axis=0)) / truth.std(axis=0)
    assert error[0] < 0.05
    assert error[1] < 0.3
    spread = said.std(axis=1).mean(axis=0) / truth.std(axis=0)
    assert 2 * spread[0] < spread[1]
    again, _ = fit_rating_heads(x, y, np.ones(400), np.arange(400), HeadsConfig("bootstrap", 16), ("a", "b"))
    assert (again.heads == heads.heads).all()


def test_a_rating_of_one_source_alone_is_as_good_as_one_of_all() -> None:
    """Its rows' states lie beside those of the others, so that their mean rating is not that of the mean state."""
    x, second = RNG.normal(size=(600, 5)), np.arange(600) % 2 == 1
    x[second, 0] += 3
    truth = 4 + x @ np.array([1.0, -2.0, 0.0, 0.0, 0.5])
    y = np.stack([truth, truth], axis=1) + RNG.normal(scale=0.1, size=(600, 2))
    y[~second, 1] = np.nan
    heads, ratings = fit_rating_heads(x, y, np.ones(600), np.arange(600), HeadsConfig("bootstrap", 4), ("a", "b"))
    said = (heads.rewards(x[second]).reshape(-1, 4, 2) + np.array(ratings.offsets)).mean(axis=1)
    assert np.sqrt(np.square(said - truth[second, None]).mean(axis=0)).max() < 0.1


def test_what_cannot_be_fitted_is_refused() -> None:
    x, y = RNG.normal(size=(4, 2)), np.array([[1.0, np.nan]] * 4)
    with pytest.raises(BadInputError, match="no row has the rating 'b'"):
        fit_rating_heads(x, y, np.ones(4), np.arange(4), HeadsConfig(), ("a", "b"))
    with pytest.raises(BadInputError, match="all rows are of one"):
        fit_rating_heads(x, y[:, :1], np.ones(4), np.zeros(4), HeadsConfig(), ("a",))
