"""Guide-GRPO: a prompt that no row of the group solves is generated again with a hint, and trained without it.

Covers: which groups are generated again (by the verifier), the hinted context of generation beside the original one of
training, the tag `guided` of such rows. Their `logp_mu` is of the hinted context: the ratio of the objective `guide`
is taken against it, and a behaviour correction must leave these rows alone. Leaves out: that objective, dropping hinted
groups that are still all wrong or all right (filter `guided_mixed`).

Source: arXiv 2506.13923, code guide_rl read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Lt

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.hints import check_wording, group_accuracies, row_text, with_hint
from assay_policy_training.plugins.protocols import RecipeView, ResampleRequest

GUIDED = "guided"


@dataclass(frozen=True)
class Guide(RecipeSettings, section="contexts"):
    """S1. `threshold`: a group whose mean `acc` is at most this is generated again; `hint`: the entry that is shown."""

    threshold: Annotated[float, Ge(0), Lt(1)] = 0.001
    hint: str = "hint"
    wording: str = "\n\nHint: {hint}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_wording(self.wording)

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for a behaviour correction, or an objective that is one: a guided row's old and mu are
        of different contexts."""
        if recipe.corrections:
            raise BadInputError("guided rows have no sampler to be corrected for", field="corrections")
        if getattr(recipe.objective, "corrects_behaviour", False):
            raise BadInputError("divides by what the sampler saw, of guided rows the hint too", field="objective")

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        return list(items)

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """Once: the hinted rows replace the first ones."""
        if round > 1:
            return []
        return [
            ResampleRequest(uid, replace(item, generate_from=with_hint(item.prompt, hint, self.wording), source=GUIDED))
            for uid, item, acc in group_accuracies(batch)
            if acc <= self.threshold and (hint := row_text(item, self.hint))
        ]
