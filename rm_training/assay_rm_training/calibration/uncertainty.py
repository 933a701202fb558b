"""What the uncertainty of a reward model is worth on held-out pairs: its scale, and whether it orders pairs.

Covers: the factor on the deviations by which they predict held-out labels best, what they add to the likelihood of a
temperature alone, accuracy by thirds of the pairs. Leaves out: where deviations come from (ensembles, heads),
probabilities of scores (`fitting`).

A pair's label is predicted by P = s(m / T / sqrt(1 + pi/8 (f d / T)^2)), m the margin of its rewards and d the
deviation of that margin: the logistic function averaged over a normal margin (MacKay 1992, "The evidence framework
applied to classification networks"). f -> 0 is the temperature T alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, clustered_mean, interval_text, share_interval

Floats = npt.NDArray[np.float64]
LEAST_PAIRS = 30
FOLDS = 4
LEAST_SHARE, LARGEST_SHARE = 0.01, 100.0  #: of f d / T at the mean d: below it there is nothing to scale


@dataclass(frozen=True)
class OrderedThirds:
    """Accuracy (a tie is wrong) by thirds of the pairs, from those that `by` calls the surest. `difference`: of the
    first third less the last; intervals by prompt, None: undetermined."""

    by: str
    accuracy: tuple[float, ...]
    intervals: tuple[Interval | None, ...]
    difference: float
    interval: Interval | None

    @property
    def verdict(self) -> str:
        if self.interval is not None and self.interval.low > 0:
            return "orders pairs by accuracy"
        if self.interval is not None and self.interval.high < 0:
            return "ORDERS PAIRS THE WRONG WAY"
        return "DOES NOT ORDER PAIRS by accuracy"

    def __str__(self) -> str:
        thirds = ", ".join(f"{value:.3f}" for value in self.accuracy)
        return f"{thirds}; first less last {self.difference:+.3f} ({interval_text(self.interval, '+.3f')})"


@dataclass(frozen=True)
class UncertaintyReport:
    """`factor`: f, 1 where the labels are predicted best without any deviation. `nll_temperature`, `nll`: with T alone,
    and with T and f, both on pairs whose prompt was left out of the fit; `gain`: their difference, its interval by
    prompt. `thirds`: by the deviation of the margin, by |margin| and by |margin| / deviation."""

    pairs: int
    factor: float
    temperature: float
    nll_temperature: float
    nll: float
    gain: float
    gain_interval: Interval | None
    thirds: tuple[OrderedThirds, OrderedThirds, OrderedThirds]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the verdict on the deviation."""
        return asdict(self) | {"verdict": self.thirds[0].verdict}

    def rows(self) -> list[tuple[str, str]]:
        """Of a table for people."""
        moderated = f"{self.nll_temperature:.4f} without, {self.nll:.4f} with it"
        gain = f"gain {self.gain:+.4f} ({interval_text(self.gain_interval, '+.4f')})"
        return [
            ("uncertainty", f"it {self.thirds[0].verdict}"),
            *((f"  accuracy by thirds of {one.by}", str(one)) for one in self.thirds),
            ("  NLL of pairs left out", f"{moderated}; {gain}; deviations times {self.factor:.3g}"),
        ]


def measure_uncertainty(
    margins: Sequence[float] | Floats, deviations: Sequence[float] | Floats, prompts: Sequence[str]
) -> UncertaintyReport | None:
    """Of pairs [N]: chosen less rejected, the deviation of that difference, the prompt. None under LEAST_PAIRS pairs.

    Raises BadInputError for numbers that are not finite and deviations below 0.
    """
    m, d = np.asarray(margins, dtype=np.float64), np.asarray(deviations, dtype=np.float64)
    if not (np.isfinite(m).all() and np.isfinite(d).all() and (d >= 0).all()):
        raise BadInputError("margins and deviations must be finite, deviations 0 or more", field="uncertainty")
    if len(m) < LEAST_PAIRS:
        return None
    _, number = np.unique(np.asarray(prompts), return_inverse=True)
    fold = number % FOLDS
    plain: Floats = np.empty(len(m))
    moderated: Floats = np.empty(len(m))
    for out in range(FOLDS):
        held = fold == out
        if held.any() and not held.all():
            plain[held] = _losses(m[held], d[held], *_fit(m[~held], np.zeros(int((~held).sum()))))
            moderated[held] = _losses(m[held], d[held], *_fit(m[~held], d[~held]))
        elif held.all():
            plain, moderated = _losses(m, d, *_fit(m, 0 * d)), _losses(m, d, *_fit(m, d))
    temperature, factor = _fit(m, d)
    gains = plain - moderated
    surest = {"uncertainty": -d, "|margin|": np.abs(m), "|margin| / uncertainty": np.abs(m) / (d + 1e-12)}
    deviation, margin, ratio = (_thirds(by, m, sure, prompts) for by, sure in surest.items())
    return UncertaintyReport(
        len(m),
        factor or 1.0,
        temperature,
        float(plain.mean()),
        float(moderated.mean()),
        float(gains.mean()),
        clustered_mean(gains, prompts),
        (deviation, margin, ratio),
    )


def _losses(m: Floats, d: Floats, temperature: float, factor: float) -> Floats:
    z = m / temperature / np.sqrt(1 + np.pi / 8 * np.square(factor * d / temperature))
    return np.asarray(np.logaddexp(0.0, -z))


def _fit(m: Floats, d: Floats) -> tuple[float, float]:
    """T and f of the greatest likelihood; f is 0 where deviations do not help."""
    size = float(np.abs(m).mean()) or 1.0
    bounds = [(np.log(1e-3), np.log(1e3))]
    alone = minimize(
        lambda x: _losses(m, d, size * float(np.exp(x[0])), 0.0).mean(), [0.0], bounds=bounds, method="L-BFGS-B"
    )
    temperature, scale = size * float(np.exp(alone.x[0])), float(d.mean())
    if not scale > 0:
        return temperature, 0.0

    def loss(x: Floats) -> float:
        t = size * float(np.exp(x[0]))
        return float(_losses(m, d, t, float(np.exp(x[1])) * t / scale).mean())

    limits = [*bounds, (np.log(LEAST_SHARE), np.log(LARGEST_SHARE))]
    both = minimize(loss, [alone.x[0], 0.0], bounds=limits, method="L-BFGS-B")
    if both.fun >= alone.fun - 1e-9 or both.x[1] <= limits[1][0] + 1e-3:
        return temperature, 0.0
    temperature = size * float(np.exp(both.x[0]))
    return temperature, float(np.exp(both.x[1])) * temperature / scale


def _thirds(by: str, m: Floats, sure: Floats, prompts: Sequence[str]) -> OrderedThirds:
    right = (m > 0).astype(float)
    thirds = np.array_split(np.argsort(-sure, kind="stable"), 3)
    shares = tuple(float(right[third].mean()) for third in thirds)
    intervals = tuple(share_interval(right[third], [prompts[i] for i in third]) for third in thirds)
    # Its mean is the difference, its residuals are those of the two means: CR2 of the difference.
    difference = shares[0] - shares[2]
    values = np.full(len(m), difference)
    for third, share, sign in ((thirds[0], shares[0], 1), (thirds[2], shares[2], -1)):
        values[third] += sign * (right[third] - share) * len(m) / len(third)
    return OrderedThirds(by, shares, intervals, difference, clustered_mean(values, prompts))
