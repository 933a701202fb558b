"""GAIN-RL: prompts ordered by the angle concentration of the policy's hidden states, highest first.

Covers: the score of a prompt (`angles`), sampling around a centre that moves through the order as the policy solves
prompts. Leaves out: ends of the order: the centre stays at the last prompt.

Source: "Angles Don't Lie", arXiv 2506.02281, code wangqinsi1/GAINRL read. Its reward goes up to 2, so it halves the
mean; here `acc` lies in [0, 1] already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt

from assay.errors import BadInputError
from assay.ids import prompt_id
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts.angles import Angles, measure_angles
from assay_policy_training.plugins.prompts.source import prompts_digest
from assay_policy_training.plugins.protocols import StepReport

if TYPE_CHECKING:
    from assay_policy_training.core.policy import Policy


def centre_shift(acc: float, angle: float, *, pace: float, alpha: float, beta: float, limit: float) -> float:
    """How far the centre moves after a step: pace (tanh(alpha (acc - beta)) + tanh(alpha angle)), in [0, limit].

    `acc` in [0, 1]: mean verifier result; `angle`: mean cosine inside the step's questions.
    """
    shift = pace * math.tanh(alpha * (acc - beta)) + pace * math.tanh(alpha * angle)
    return min(max(shift, 0.0), limit)


class GainPrompts:
    """S0, opened. `angles`: of each item."""

    def __init__(self, items: Sequence[PromptItem], angles: Sequence[Angles], settings: GainRl, *, seed: int) -> None:
        if not items:
            raise BadInputError("there are no prompts", field="prompts")
        self.items, self.settings, self.seed = list(items), settings, seed
        self.within = {prompt_id(item.prompt): angle.within for item, angle in zip(items, angles, strict=True)}
        scores = [angle.within + settings.cross_weight * angle.across for angle in angles]
        self.order = sorted(range(len(items)), key=lambda row: (-scores[row], row))
        self.centre = 0.0  #: place in `order`
        self.draws = 0

    def next(self, n: int) -> list[PromptItem]:
        """Without repetition as far as there are prompts."""
        places = np.arange(len(self.order))
        distance = (places - self.centre) / self.settings.width
        weights = np.exp(-0.5 * (distance**2 - (distance**2).min()))
        chosen: list[int] = []
        while len(chosen) < n:
            generator = np.random.default_rng([self.seed, self.draws])
            self.draws += 1
            size = min(n - len(chosen), len(places))
            # Exponential keys: the `size` smallest are a draw without replacement by these weights.
            keys = np.log(generator.exponential(size=len(places))) - np.log(np.maximum(weights, 1e-300))
            chosen += np.argsort(keys, kind="stable")[:size].tolist()
        return [self.items[self.order[index]] for index in chosen]

    def observe(self, report: StepReport) -> None:
        """A step without any verifier result leaves the centre where it is."""
        batch, chosen = report.batch, self.settings
        if batch.acc is None or bool(batch.acc.isnan().all()):
            return
        verified = [self.within[name] for item in batch.items if (name := prompt_id(item.prompt)) in self.within]
        angle = sum(verified) / len(verified) if verified else 0.0
        shift = centre_shift(
            float(batch.acc.nanmean()),
            angle,
            pace=chosen.pace,
            alpha=chosen.alpha,
            beta=chosen.beta,
            limit=chosen.limit,
        )
        self.centre = min(self.centre + shift, float(len(self.order) - 1))

    def state_dict(self) -> dict[str, Any]:
        """The order too: the weights that it was measured with are another run's."""
        return {
            "centre": self.centre,
            "draws": self.draws,
            "order": self.order,
            "within": self.within,
            "prompts": prompts_digest(self.items),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts are not those that the state is about."""
        if state["prompts"] != prompts_digest(self.items):
            raise BadInputError("these are not the prompts that the interrupted run used", field="prompts")
        self.centre, self.draws = float(state["centre"]), int(state["draws"])
        self.order = [int(row) for row in state["order"]]
        self.within = {str(name): float(value) for name, value in state["within"].items()}


@dataclass(frozen=True)
class GainRl(RecipeSettings, section="source"):
    """S0. `width`: deviation of the draw; `pace`, `limit`: of the centre; these three in prompts, for sets of
    thousands."""

    width: Annotated[float, Gt(0)] = 1000.0
    pace: Annotated[float, Gt(0)] = 500.0
    alpha: Annotated[float, Gt(0)] = 2.0
    beta: float = 0.5
    limit: Annotated[float, Gt(0)] = 1000.0
    cross_weight: float = 8.0

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: Policy) -> GainPrompts:
        return GainPrompts(items, measure_angles(policy, items), self, seed=seed)
