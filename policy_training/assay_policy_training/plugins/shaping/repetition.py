"""A penalty on repeated n-grams of a response, per token or as one number.

Source: "Demystifying Long Chain-of-Thought Reasoning in LLMs", arXiv 2502.03373. Leaves out: repetition across rows.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


def repeated_tokens(tokens: Sequence[int], n: int) -> list[bool]:
    """For each token, whether it lies in an n-gram that began earlier too."""
    seen: set[tuple[int, ...]] = set()
    repeated = [False] * len(tokens)
    for start in range(len(tokens) - n + 1):
        gram = tuple(tokens[start : start + n])
        if gram in seen:
            repeated[start : start + n] = [True] * n
        seen.add(gram)
    return repeated


def repeated_share(tokens: Sequence[int], n: int) -> float:
    """1 - distinct / all n-grams; 0 for a text shorter than one."""
    count = len(tokens) - n + 1
    return 1 - len({tuple(tokens[i : i + n]) for i in range(count)}) / count if count > 0 else 0.0


def discounted_stream(reward: Tensor, discount: float) -> Tensor:
    """Rewards [T] whose undiscounted sum from t on is the discounted return of `reward` from t on.

    d_t = G_t - G_{t+1} with G_t = r_t + discount G_{t+1}: a stream with its own discount, next to an outcome without
    one.
    """
    returns = torch.zeros(len(reward) + 1, dtype=torch.float64)
    for t in range(len(reward) - 1, -1, -1):
        returns[t] = reward[t] + discount * returns[t + 1]
    return returns[:-1] - returns[1:]


class RepetitionPenalty(RecipeSettings, section="shaping"):
    """S3. `dense`: -penalty on each repeated token, discounted by itself (exact where the estimator's gamma and lambda
    are 1). `sparse`: -penalty x the share of repeated n-grams on the row. The policy's own tokens count."""

    n: Annotated[int, Gt(0)] = 40
    penalty: Annotated[float, Gt(0)] = 0.05
    form: Literal["dense", "sparse"] = "dense"
    discount: Annotated[float, Ge(0), Le(1)] = 0.99

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        rows = [batch.tokens[i][batch.mask[i]].tolist() for i in range(len(batch))]
        if self.form == "sparse":
            shares = torch.tensor([repeated_share(row, self.n) for row in rows], dtype=torch.float64)
            return batch.with_(reward=batch.scored_reward - self.penalty * shares)
        dense = torch.zeros(batch.mask.shape, dtype=torch.float64)
        for i, row in enumerate(rows):
            hit = torch.tensor(repeated_tokens(row, self.n), dtype=torch.float64)
            if hit.any():
                dense[i, batch.mask[i]] = discounted_stream(-self.penalty * hit, self.discount)
        return batch.with_(dense=dense if batch.dense is None else batch.dense + dense)
