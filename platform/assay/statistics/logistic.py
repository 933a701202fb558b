"""The logistic function and its logarithm, of any number without overflow."""

import math


def sigmoid(z: float) -> float:
    """1 / (1 + exp(-z))."""
    if z >= 0:
        return 1.0 / (1.0 + math.exp(-z))
    small = math.exp(z)
    return small / (1.0 + small)


def log_sigmoid(z: float) -> float:
    """Does not round to 0 for large z."""
    return min(z, 0.0) - math.log1p(math.exp(-abs(z)))
