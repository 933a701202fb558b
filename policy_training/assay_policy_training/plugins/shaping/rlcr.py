"""RLCR: correctness less the Brier term of the confidence that the response states.

Source: "Beyond Binary Rewards: Training LMs to Reason About Their Uncertainty", arXiv 2507.16806. Covers: the paper's
reward c - (c - q)^2 and the repository's weighted form. Leaves out: asking for a confidence (the prompt does).
"""

import re
from typing import Literal

import torch

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.shaping.outcomes import correctness


def paper_reward(right: float, confidence: float) -> float:
    """c - (c - q)^2: highest in expectation at q = P(right)."""
    return right - (right - confidence) ** 2


def repository_reward(right: float, confidence: float | None) -> float:
    """0.5 format + 0.5 c + 0.5 (1 - (c - q)^2); 0 where the format is wrong (confidence None)."""
    return 0.0 if confidence is None else 0.5 + 0.5 * right + 0.5 * (1 - (right - confidence) ** 2)


def stated_confidence(response: str, tags: tuple[str, ...]) -> float | None:
    """The number in the last of `tags`, which must come in this order, each opened and closed; None = not so stated.

    A number outside [0, 1] is a wrong format, not clipped.
    """
    pattern = r".*".join(rf"<{re.escape(tag)}>.*</{re.escape(tag)}>" for tag in tags)
    statements = re.findall(rf"<{re.escape(tags[-1])}>(.*?)</{re.escape(tags[-1])}>", response, re.DOTALL)
    if not statements or re.search(pattern, response, re.DOTALL) is None:
        return None
    try:
        value = float(statements[-1])
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


class CalibrationReward(RecipeSettings, section="shaping"):
    """S3: in place of the reward. `form` paper: a response without a stated confidence gets `unstated`, the lowest that
    a stated one can get; `form` repository: 0, the lowest of that form. A row of unknown correctness becomes missing.
    """

    form: Literal["paper", "repository"] = "paper"
    tags: tuple[str, ...] = ("think", "answer", "analysis", "confidence")
    unstated: float = -1.0
    correct: str | None = None  #: reward part that says what is right; None = `acc`

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tags:
            raise BadInputError("needs at least the tag of the confidence", field="shaping.tags")

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        right = torch.where(batch.valid, correctness(batch, self.correct), torch.nan)
        earned = [
            float("nan") if c != c else self._reward(c, stated_confidence(response, self.tags))
            for c, response in zip(right.tolist(), batch.responses, strict=True)
        ]
        return batch.with_(reward=torch.tensor(earned, dtype=torch.float64))

    def _reward(self, right: float, confidence: float | None) -> float:
        if self.form == "repository":
            return repository_reward(right, confidence)
        return self.unstated if confidence is None else paper_reward(right, confidence)
