"""From a step's rollouts to the pairs that a selector may choose from.

Covers: pairs within a group, of different texts, not asked about before; what is known of each response. Leaves out:
choosing (`selectors`), asking (`labelling`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from assay import ids
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CandidatePairs:
    """r responses, n pairs. `responses`: their ids. `first`, `second`: [n] rows, in the order A, B of the comparison.
    `comparisons`: [n] ids."""

    items: tuple[PromptItem, ...]
    texts: tuple[str, ...]
    prompts: tuple[str, ...]  #: [r] id of each response's prompt
    responses: tuple[str, ...]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    comparisons: tuple[str, ...]

    @property
    def prompt_numbers(self) -> npt.NDArray[np.int64]:
        """[n] which prompt each pair belongs to."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(self.prompts[row], len(numbers)) for row in self.first], dtype=np.int64)


def candidate_pairs(batch: RolloutBatch, excluded: Collection[str] = ()) -> CandidatePairs:
    """Every pair of different texts to one prompt, once, but the `excluded` ones."""
    prompts = tuple(ids.prompt_id(prompt) for prompt in batch.prompts)
    responses = tuple(ids.response_id(prompt, text) for prompt, text in zip(prompts, batch.responses, strict=True))
    by_prompt: dict[str, dict[str, int]] = {}
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        if batch.unfinished is None or not batch.unfinished[row]:
            by_prompt.setdefault(prompt, {}).setdefault(response, row)
    pairs: dict[str, tuple[int, int]] = {}
    for prompt, rows in by_prompt.items():
        for a, b in combinations(sorted(rows), 2):
            comparison = ids.comparison_id(prompt, a, b)
            if comparison not in excluded:
                pairs[comparison] = rows[a], rows[b]
    columns = np.array(list(pairs.values()), dtype=np.int64).reshape(-1, 2)
    return CandidatePairs(batch.items, batch.responses, prompts, responses, columns[:, 0], columns[:, 1], tuple(pairs))


def member_rewards(batch: RolloutBatch) -> Floats | None:
    """[r, k] rewards of an ensemble's members, NaN for a row without a score; None where no score names members."""
    listed = [next(iter(scores.values()), None) for scores in batch.scores]
    rows = [() if score is None else score.members for score in listed]
    width = max(map(len, rows), default=0)
    if width < 2:
        return None
    return np.array([row if len(row) == width else [np.nan] * width for row in rows], dtype=np.float64)


def sequence_logp(logp: Any, mask: Any) -> Floats:
    """[r] sums over tokens of logp [r, T]."""
    return np.asarray((logp.double() * mask).sum(1).numpy(), dtype=np.float64)
