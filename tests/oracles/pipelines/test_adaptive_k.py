"""The worked numbers of Skywork-Reward-V2's adaptive retrieval (stage 1, step 2)."""

from __future__ import annotations

import math

import pytest

from assay.errors import BadInputError
from assay_pipelines.embedding.retrieval import adaptive_k


@pytest.mark.parametrize(
    ("p", "k"), [(0.0, 8), (0.3, 8), (0.5, 8), (0.51, 4), (0.75, 2), (0.9, 1), (0.99, 1), (0.9999999, 1), (1.0, 0)]
)
def test_worked_numbers_at_k_max_8(p: float, k: int) -> None:
    assert adaptive_k(p) == k


@pytest.mark.parametrize(("p", "k_max", "k"), [(0.7, 10, 3), (0.9, 10, 1), (0.8, 5, 1), (0.6, 5, 2), (0.51, 0, 0)])
def test_binary_rounding_adds_no_neighbour(p: float, k_max: int, k: int) -> None:
    """In binary 10 * (1 - 0.7) is 3.0000000000000004, whose ceiling is 4."""
    assert adaptive_k(p, k_max) == k


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(BadInputError, match="probability"):
        adaptive_k(p)
