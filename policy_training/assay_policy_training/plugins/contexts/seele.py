"""SEELE: several rounds a prompt, each starting from as much of the solution as makes half of its rollouts right.

Covers: the rounds (all rows of a prompt stay in one group), the share of the next round from the curve fitted to the
accuracies so far, the solution's beginning as the given start of the policy's turn, the last share of each
prompt for the next time it comes. Prompts without a solution are drawn in one round without a hint; one without a
verifier too. Leaves out: the small likelihood loss on the hint's tokens (auxiliary loss `hint_nll`).

Source: "Staying in the Sweet Spot", arXiv 2509.06923 (paper read): 4 rounds of 8, target 0.5, first share
(steps - 1) / steps of the solution's steps; here a step is a line or a sentence.

The curve of accuracy over the share of a solution that is shown, and its fit: item response theory's 3PL. Covers: f(p)
= b + (1 - b) / (1 + exp(-k (p + mu))), its inverse, least squares by `scipy`, and halving the
interval where there are too few points to fit. Source: arXiv 2509.06923 (paper read). Oracle b .1, k 10, mu -.4: f(.2)
.207283, f(.5) .757953, f^-1(.5) .377686.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Lt
from scipy.optimize import least_squares
from scipy.special import expit

from assay.ids import prompt_id
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.contexts.hints import hint_of, row_text
from assay_policy_training.plugins.protocols import ResampleRequest

STEEPEST = 100.0


@dataclass(frozen=True)
class SuccessCurve:
    """`b`: accuracy by guessing; `k`: slope; `mu`: minus the share at which half of the rest is reached."""

    b: float
    k: float
    mu: float

    def accuracy(self, share: float) -> float:
        return self.b + (1 - self.b) / (1 + math.exp(min(700.0, -self.k * (share + self.mu))))

    def share(self, accuracy: float) -> float | None:
        """The share at this accuracy; None where the curve does not reach it."""
        if not self.b < accuracy < 1 or not self.k > 0:
            return None
        return -math.log((1 - self.b) / (accuracy - self.b) - 1) / self.k - self.mu


def fit_curve(shares: Sequence[float], accuracies: Sequence[float], *, below: float) -> SuccessCurve | None:
    """Least squares over points averaged by share; b stays under `below`. None for fewer than three distinct shares
    or where accuracy does not rise with the share.
    """
    points: dict[float, list[float]] = {}
    for share, accuracy in zip(shares, accuracies, strict=True):
        points.setdefault(round(share, 9), []).append(accuracy)
    if len(points) < 3:
        return None
    x = np.array(sorted(points))
    y = np.array([sum(points[share]) / len(points[share]) for share in sorted(points)])
    if y[-1] - y[0] <= 0:
        return None
    ceiling = below * 0.98
    fit = least_squares(
        lambda value: value[0] + (1 - value[0]) * expit(value[1] * (x + value[2])) - y,
        (min(max(float(y.min()), 0.0), ceiling), 10.0, -float(x.mean())),
        bounds=((0.0, 1e-3, -np.inf), (ceiling, STEEPEST, np.inf)),
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    return SuccessCurve(*map(float, fit.x))


def bisected_share(shares: Sequence[float], accuracies: Sequence[float], target: float) -> float:
    """The middle of the interval left: below the least share that reached the target, above the largest that did
    not."""
    reached = [share for share, accuracy in zip(shares, accuracies, strict=True) if accuracy >= target]
    high = min(reached, default=1.0)
    short = [s for s, accuracy in zip(shares, accuracies, strict=True) if accuracy < target and s < high]
    return (max(short, default=0.0) + high) / 2


def next_share(shares: Sequence[float], accuracies: Sequence[float], target: float) -> float:
    """In [0, 1]: where the fitted curve reaches the target; the interval's middle where it cannot be fitted."""
    curve = fit_curve(shares, accuracies, below=target)
    share = None if curve is None else curve.share(target)
    return bisected_share(shares, accuracies, target) if share is None else min(max(share, 0.0), 1.0)


SHARE = "hint_share"  #: entry of a row's prompt: how much of the solution it starts from
_STEP = re.compile(r"\n+|(?<=[.!?])\s+")


def steps_of(solution: str) -> int:
    """Lines or sentences, at least 1."""
    return max(1, sum(bool(part.strip()) for part in _STEP.split(solution)))


class Seele(StatefulSettings, section="contexts"):
    """S1. `rounds` a prompt, `group_size` rollouts each; `target`: the accuracy wanted."""

    rounds: Annotated[int, Ge(1)] = 4
    target: Annotated[float, Gt(0), Lt(1)] = 0.5
    solution: str = "solution"
    last: dict[str, float] = field(init=False, default_factory=dict)  #: prompt's id -> the last share chosen for it

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        return [
            self._hinted(item, self._first_share(item)) if row_text(item, self.solution) else item for item in items
        ]

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """After each round but the last, more rows of every prompt whose accuracy is known. The share found after the
        last round is kept for the prompt's next time."""
        redraws = []
        for uid, (shares, accuracies, item) in self._points(batch).items():
            share = next_share(shares, accuracies, self.target)
            self.last[prompt_id(item.prompt)] = share
            if round < self.rounds:
                redraws.append(ResampleRequest(uid, self._hinted(item, share), replace=False))
        return redraws if round < self.rounds else []

    def _points(self, batch: RolloutBatch) -> dict[str, tuple[list[float], list[float], PromptItem]]:
        """Per group: the shares tried, the mean accuracy at each, the prompt."""
        pass_rates: dict[str, dict[float, list[float]]] = {}
        items: dict[str, PromptItem] = {}
        for row, uid in enumerate(batch.uid):
            item = batch.items[row]
            acc = math.nan if batch.acc is None else float(batch.acc[row])
            if SHARE in item.meta and not math.isnan(acc):
                pass_rates.setdefault(uid, {}).setdefault(float(item.meta[SHARE]), []).append(acc)
                items[uid] = item
        return {
            uid: (list(points), [sum(accs) / len(accs) for accs in points.values()], items[uid])
            for uid, points in pass_rates.items()
        }

    def _first_share(self, item: PromptItem) -> float:
        steps = steps_of(row_text(item, self.solution))
        return self.last.get(prompt_id(item.prompt), (steps - 1) / steps)

    def _hinted(self, item: PromptItem, share: float) -> PromptItem:
        return replace(item, forced=hint_of(row_text(item, self.solution), share), meta={**item.meta, SHARE: share})
