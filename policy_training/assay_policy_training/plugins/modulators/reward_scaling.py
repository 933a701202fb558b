"""Dynamic reward scaling: advantages by how hard a prompt's data is and how far the model is from its demonstrations.

Source: "Inverse Reinforcement Learning with Dynamic Reward Scaling for LLM Alignment", arXiv 2503.18991 (DR-IRL, its
GRPO-S; notes and abstract). alpha = a_D a_M, with a_D = s(delta) / s(mean delta), delta = 1 - the mean over clauses of
their best similarity, and a_M = s(mean kept gap) / s(mean gap), a gap being a demonstration's reward less the
group's. Sources disagree whether a larger delta means harder; the formula weighs it more. Text similarity is Jaccard's
over words here: the measure is not in our sources. Leaves out: learning the shadow reward models (`assay train
lists` on demonstrations).
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from assay.statistics.logistic import sigmoid
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.shaping.par import reference_rewards

_CLAUSE = re.compile(r"[.!?;:,\n]+")
_WORD = re.compile(r"\w+")


def similarity(response: str, demonstration: str) -> float:
    """Mean over the demonstration's clauses of the best Jaccard similarity of words with one of the response's."""
    demonstrated = _clauses(demonstration)
    clauses = _clauses(response)
    if not demonstrated:
        return 0.0
    return sum(max((len(a & b) / len(a | b) for b in clauses), default=0.0) for a in demonstrated) / len(demonstrated)


def _clauses(text: str) -> list[frozenset[str]]:
    words = [frozenset(_WORD.findall(clause.lower())) for clause in _CLAUSE.split(text)]
    return [unique_words for unique_words in words if unique_words]


def data_scale(deltas: Sequence[float]) -> list[float]:
    """s(delta) / s(mean delta) of each prompt."""
    middle = sigmoid(sum(deltas) / len(deltas))
    return [sigmoid(value) / middle for value in deltas]


def model_scale(gaps: Sequence[float], tau: float) -> float:
    """s(mean of the gaps whose squared distance from the mean is at most tau) / s(mean gap); 1 where none is kept."""
    mean = sum(gaps) / len(gaps)
    inliers = [gap for gap in gaps if (gap - mean) ** 2 <= tau]
    return sigmoid(sum(inliers) / len(inliers)) / sigmoid(mean) if inliers else 1.0


class RewardScaling(RecipeSettings, section="modulators"):
    """S7: the advantage times its prompt's alpha.

    A prompt's row holds demonstrations: `references` (texts) and `reference_rewards` (what the reward model gave them).
    One that lacks either keeps its advantages and takes no part in the means.
    """

    tau: Annotated[float, Ge(0)] = 4.0

    def modulate(self, batch: RolloutBatch) -> Tensor:
        adv = batch.estimated_adv
        groups: dict[int, list[int]] = {}
        for row, group in enumerate(batch.group.tolist()):
            groups.setdefault(group, []).append(row)
        measured = {
            group: measure for group, rows in groups.items() if (measure := self._measure(batch, rows)) is not None
        }
        alpha = torch.ones(len(batch), dtype=adv.dtype)
        if measured:
            model = model_scale([gap for _, gap in measured.values()], self.tau)
            scales = data_scale([delta for delta, _ in measured.values()])
            for group, scale in zip(measured, scales, strict=True):
                alpha[groups[group]] = scale * model
        return adv * alpha[:, None]

    def _measure(self, batch: RolloutBatch, rows: Sequence[int]) -> tuple[float, float] | None:
        """(delta, gap) of a group; None where it has no demonstration or no reward."""
        listed = batch.items[rows[0]].meta.get("references") if batch.items else None
        texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list | tuple) else []
        rewards = reference_rewards(batch, rows[0])
        group_rewards = [value for value in batch.scored_reward[list(rows)].tolist() if not math.isnan(value)]
        if not texts or not len(rewards) or not group_rewards:
            return None
        closeness = [similarity(batch.responses[row], text) for row in rows for text in texts]
        return 1 - sum(closeness) / len(closeness), float(rewards.mean()) - sum(group_rewards) / len(group_rewards)
