"""The advantage of an utterance by a critic of utterances: what it is worth less what the state before it is worth.

Source: ArCHer, arXiv 2402.19446; YifeiZhou02/ArCHer read: min(Q1, Q2) - min(V1, V2), on every token of the utterance.
Leaves out: the critic (`critics.turn_values`), ArCHer's optional baseline of single tokens.
"""

from typing import ClassVar

from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


class TurnAdvantage(RecipeSettings, section="estimator"):
    """S6: Q - V of the token's turn. Rows without a reward get 0."""

    needs: ClassVar[frozenset[str]] = frozenset({"values", "action_values"})

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        mask = batch.mask & batch.valid[:, None]
        return (batch.extras["action_values"] - batch.critic_values) * mask, None
