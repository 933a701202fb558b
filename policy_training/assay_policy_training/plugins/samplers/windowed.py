"""Rollouts a window at a time: the next step continues long responses instead of waiting for them in this one.

Covers: at most `window` new tokens a row and step; rows that are not done are carried, with the version of the weights
and the log-prob of each token as it was drawn; rows that are done leave, and new prompts take their place. A row's
tokens are all in the batch, only the new ones in `loss_mask`: each is trained once, soon after it was generated, while
advantages see the whole row. The reward is requested when a row is complete. Leaves out: the advantage of unfinished
rows (`estimators.gae`, EGAE), the critic, which learns of a row when it is done.

Source: T-PPO arXiv 2506.15050.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView, StepReport
from assay_policy_training.plugins.samplers.carried import (
    CarriedRow,
    continued,
    empty_row,
    row_from_dict,
    rows_batch,
)
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


class WindowedSampler:
    """S2 with the policy's own weights. What it carries is in every checkpoint."""

    def __init__(self, policy: Policy, sampling: Sampling, *, window: int) -> None:
        self.policy, self.sampling, self.window = policy, sampling, window
        self._rows: list[CarriedRow] = []
        self._drawn: list[CarriedRow] = []  #: of the last rollout

    def carried(self) -> int:
        return len(self._rows)

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """The rows that are carried, a window longer, then `group_size` new ones of each item; on the CPU."""
        groups = zip(items, group_seeds(seed, len(items)), strict=True)
        begun = [empty_row("", item, group_seed, index) for item, group_seed in groups for index in range(group_size)]
        before = [*self._rows, *begun]
        sampler = TransformersSampler(self.policy, self.sampling)
        self._drawn = continued(sampler, before, self.window, version=version)
        batch = rows_batch(self.policy, self._drawn, list(map(len, before)), limit=self.sampling.max_new_tokens)
        return batch.with_(version=batch.version.new_full((len(batch),), version))  # of what is trained now

    def observe(self, report: StepReport) -> None:
        """Carry on what the step's rollouts left undone."""
        unfinished = report.batch.unfinished
        going = [] if unfinished is None else unfinished.nonzero().squeeze(1).tolist()
        self._rows = [replace(self._drawn[row], uid=report.batch.uid[row]) for row in going]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [row.to_dict() for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows = [row_from_dict(row) for row in state["rows"]]

    def tensors(self) -> dict[str, Any]:
        return {"rows": [row.columns() for row in self._rows]}

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        """After `load_state_dict`."""
        pairs = zip(self._rows, state["rows"], strict=True)
        self._rows = [replace(row, **columns) for row, columns in pairs]


class Windowed(RecipeSettings, section="sampler"):
    """S2. `window`: new tokens a row and step. `prompts_per_step` x `group_size` rows are under way, or fewer."""

    window: Annotated[int, Ge(1)] = 512

    def check_recipe(self, recipe: RecipeView) -> None:
        """Unfinished rows learn from a critic alone, and are generated once per step."""
        if "values" not in getattr(recipe.estimator, "needs", ()) or recipe.critic is None:
            raise BadInputError("windows need a critic and an advantage that uses it, such as gae", field="estimator")
        if recipe.contexts is not None or max((f.rounds for f in recipe.filters), default=1) > 1:
            raise BadInputError("windows do not go with contexts or filters that draw again", field="sampler")

    def open(self, policy: Policy, sampling: Sampling) -> WindowedSampler:
        return WindowedSampler(policy, sampling, window=self.window)
