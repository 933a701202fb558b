"""PAR, Preference As Reward: how likely a response beats reference responses to the same prompt, in (0, 1).

Source: "Reward Shaping to Mitigate Reward Hacking in RLHF", arXiv 2502.18770. Covers: references given with the prompt
as rewards, or the other rows of the group. Leaves out: references that a served model scores with every request (the
server's own `par`, `assay_serving.composition`), the other variants (there too).
"""

from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings

#: Key of a prompt's row: rewards of reference responses, given by the model that rewards the policy.
ROW_KEY = "reference_rewards"


def par(reward: float, references: Tensor, k: float = 1.0) -> float:
    """Mean over references [M] of sigmoid(k (reward - reference)); the mean of sigmoids, not the sigmoid of a mean."""
    return float(torch.sigmoid(k * (reward - references.double())).mean())


class ParReward(RecipeSettings, section="shaping"):
    """S3: `par` in place of the reward. `references`: `row` (the prompt's `reference_rewards`), or `group` (the other
    rows of the group that have a reward). A row without a reference becomes missing.

    Far above all references it is flat: renew them as the policy improves. Dividing by a group's deviation afterwards
    blows small differences up again.
    """

    references: Literal["row", "group"] = "row"
    k: Annotated[float, Gt(0)] = 1.0

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        reward, group = batch.scored_reward, batch.group.tolist()
        rewarded = batch.valid.nonzero().squeeze(1).tolist()
        members: dict[int, list[int]] = {}
        for i in rewarded:
            members.setdefault(group[i], []).append(i)
        out = torch.full_like(reward, torch.nan, dtype=torch.float64)
        for i in rewarded:
            if self.references == "row":
                references = reference_rewards(batch, i)
            else:
                references = reward[[other for other in members[group[i]] if other != i]]
            if len(references):
                out[i] = par(float(reward[i]), references, self.k)
        return batch.with_(reward=out)


def reference_rewards(batch: RolloutBatch, row: int) -> Tensor:
    """[M] rewards of reference responses that the prompt's row holds. Raises BadInputError unless they are numbers."""
    listed = batch.items[row].meta.get(ROW_KEY) if batch.items else None
    numbers = listed if isinstance(listed, list | tuple) else []
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        raise BadInputError("must be a list of numbers", field=ROW_KEY)
    return torch.tensor([float(n) for n in numbers], dtype=torch.float64)
