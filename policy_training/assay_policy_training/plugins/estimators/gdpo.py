"""GDPO: every reward part is normalised over its group by itself, then summed, then whitened over the batch.

Covers: parts that a plain sum would drown out keep their influence; whitening over all tokens of the batch (long rows
weigh more) or over its rows. Reads the raw parts: the composition only decides which rows have a reward; shaping and
dense rewards are ignored.

Source: arXiv 2601.05242, as in verl's gdpo estimator.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.compositions.weighted import named_part
from assay_policy_training.plugins.estimators.group_relative import grpo, over_tokens
from assay_policy_training.plugins.protocols import RecipeView


def summed_parts(
    parts: Mapping[str, Tensor], weights: Mapping[str, float], group: Tensor, *, ddof: int = 1, eps: float = 1e-6
) -> Tensor:
    """[B] sum of weight x GRPO advantage of each part; NaN where a part that counts is missing, or the row is alone.

    Parts that are all equal in a group contribute 0, as in `grpo`.
    """
    counted = {name: weight for name, weight in weights.items() if weight != 0}
    missing = torch.stack([parts[name].isnan() for name in counted]).any(0)
    present_parts = {name: parts[name].double().masked_fill(missing, torch.nan) for name in counted}
    total = torch.stack(
        [weight * grpo(present_parts[name], group, ddof=ddof, eps=eps) for name, weight in counted.items()]
    )
    count, _, _, _ = group_moments(next(iter(present_parts.values())), group, ddof=0)
    return total.sum(0).masked_fill(missing | (count < 2), torch.nan)


def whiten(values: Tensor, weight: Tensor, *, eps: float = 1e-8) -> Tensor:
    """[B] (x - mean) / sqrt(var + eps), each row counted `weight` [B] times, ddof 1; missing values (NaN) give 0.

    All 0 where fewer than two count or all are equal.
    """
    present = ~torch.isnan(values) & (weight > 0)
    number = torch.where(present, weight.double(), 0.0)
    filled = torch.where(present, values.double(), 0.0)
    total = number.sum()
    if total < 2 or filled[present].max() - filled[present].min() < EQUAL_RANGE:
        return torch.zeros_like(filled)
    mean = (number * filled).sum() / total
    variance = (number * (filled - mean) ** 2).sum() / (total - 1)
    return torch.where(present, (filled - mean) / (variance + eps).sqrt(), 0.0)


class Gdpo(RecipeSettings, section="estimator"):
    """S6: `whiten(summed_parts)` on every token. `weights`: none given = every part counts once.

    Whitening moves the mean over tokens to 0, so where long rows do worse a constant group's rows are moved too.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    over: Literal["tokens", "rows"] = "tokens"
    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights and not any(self.weights.values()):
            raise BadInputError("every reward part has weight 0", field="estimator.weights")

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for shaping, which would change nothing."""
        if recipe.shaping:
            raise BadInputError("gdpo reads the raw parts, which no shaping changes", field="shaping")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        """Raises BadInputError for a weight whose part no source gives."""
        weights = self.weights or dict.fromkeys(batch.r_parts, 1.0)
        for name in weights:
            named_part(batch.r_parts, name, field="estimator.weights")
        parts = {name: part.masked_fill(~batch.valid, torch.nan) for name, part in batch.r_parts.items()}
        total = summed_parts(parts, weights, batch.group, ddof=self.ddof, eps=self.eps)
        weight = batch.lengths if self.over == "tokens" else batch.mask.any(1).long()
        return over_tokens(whiten(total, weight), batch.mask), None
