"""ROVER: the log-ratio as the value of a random policy, fitted to the reward and the mean value of what comes next.

Covers: q_t = rho (logp_t - logp_old_t), its target = R~ + rho mean over the vocabulary of (log pi - log old) at the
next position (0 at the last token), a constant; loss (q - target)^2 for the token mean. R~ is the advantage: the reward
less its group's mean, on every token (estimator `dr_grpo`; the released math script normalises by the deviation, its
countdown script does not: we follow the text). Leaves out: a vocabulary that is cut (the mean runs over all of it).

Source: arXiv 2509.24981, code tinnerhrhe/ROVER read. Oracle pi .5 .3 .2, old .4 .4 .2: next term -.021513, q of the
first .223144, target with R~ .5 .478487.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView, Scope, UpdateContext

MEAN_LOGP = "mean_logp"


def at_next(values: Tensor, mask: Tensor) -> Tensor:
    """[b,T] of the following token, 0 at a row's last one."""
    moved = torch.zeros_like(values)
    moved[:, :-1] = torch.where(mask[:, 1:], values[:, 1:], 0.0)
    return moved


class Rover(RecipeSettings, section="objective"):
    """S9, token scope."""

    rho: Annotated[float, Gt(0)] = 1.0
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", MEAN_LOGP})

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where the vocabulary is cut: log-probs of what is cut off have no mean."""
        if recipe.sampling.prune_log_ratio is not None:
            raise BadInputError("rover takes means over the whole vocabulary", field="sampling.prune_log_ratio")

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        """What is read in `loss` of old is in `extras` because of this; nothing of the batch changes."""
        return batch

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        now = context.extras[MEAN_LOGP]
        old = now if context.rows is None or MEAN_LOGP not in context.rows.extras else context.rows.extras[MEAN_LOGP]
        following = at_next(now - old.to(now.device), context.mask)
        target = context.adv + self.rho * following
        value = self.rho * (logp - context.logp_old)
        return (value - target) ** 2, {"rover_target": target}
