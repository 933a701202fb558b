"""Experience replay: rows of the run's own last steps join the batch, as long as they are not too old.

Covers: a memory of trained rows with their advantages, a bound on their staleness in weight updates, a share of the
batch drawn from it by seed. Replayed rows have the source `replayed`; their `logp_old` is the log-prob they were
sampled with, so a clipped ratio is that of the weights being updated to those that drew them. Leaves out: rewarding or
scoring them again, rows of other objectives (`objectives`), recomputing values for a critic.

A-LoL's priority sampling draws rows in proportion to their advantage, instead of weighting by it: B draws with
replacement among the rows of positive advantage, each of which then counts the same, the mean of those advantages;
weighting a row by an advantage that it was drawn by would square it. A row drawn n times is kept once with n times the
weight, which is the same gradient under an aggregation that takes the mean over rows. Source: arXiv 2305.14718, code
abaheti95/LoL-RL read.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.domain import prompt_of
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.prompt import item_from_dict
from assay_policy_training.core.settings import RecipeSettings, StatefulSettings
from assay_policy_training.plugins.protocols import RecipeView

REPLAYED = "replayed"
_TEXTS = frozenset({"uid", "prompts", "responses", "failures", "scores", "items", "source"})


class Recent(RecipeSettings, section="replay", frozen=False):
    """S15. `share`: replayed rows for each new one; `max_staleness`: weight updates since a row was generated;
    `capacity`: rows remembered, the newest. `positive`: of a batch those alone that have a positive advantage."""

    share: Annotated[float, Gt(0)] = 0.5
    max_staleness: Annotated[int, Ge(1)] = 8
    capacity: Annotated[int, Ge(1)] = 1024
    positive: bool = False
    seed: int = 0
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})
    memory: RolloutBatch | None = field(init=False, default=None)
    draws: int = field(init=False, default=0)
    _texts: dict[str, Any] | None = field(init=False, default=None, repr=False)  #: between the two halves of loading

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for an objective over whole groups, of which rows are replayed one by one, and for a
        temperature that changes: a replayed row's log-probs are of the old one."""
        if recipe.objective.scope == "group":
            raise BadInputError("rows are replayed without their groups, which it compares", field="objective")
        if any("temperature" in getattr(schedule, "changes", ()) for schedule in recipe.schedules):
            raise BadInputError("replayed rows were drawn at another temperature", field="schedules")

    def mix(self, batch: RolloutBatch) -> RolloutBatch:
        """The batch and the rows drawn from memory; then the batch is remembered, what is too old forgotten."""
        newest = int(batch.version.max())
        fresh = self._fresh(newest)
        out = batch
        self.draws += 1
        number = 0 if fresh is None else min(len(fresh), round(self.share * len(batch)))
        if fresh is not None and number:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.draws)
            rows = torch.randperm(len(fresh), generator=generator)[:number].sort().values
            out = merge_batches([batch, _with_fields_of(fresh.select(rows), batch)])
        new = _replayable(batch)
        if self.positive:
            new = new.select((batch.mask & (batch.estimated_adv > 0)).any(1).nonzero().squeeze(1))
        if not len(new):
            self.memory = fresh
            return out
        joined = new if fresh is None else merge_batches([_with_fields_of(fresh, new), new])
        start = max(0, len(joined) - self.capacity)
        self.memory = joined.select(torch.arange(start, len(joined)))
        return out

    def _fresh(self, newest: int) -> RolloutBatch | None:
        if self.memory is None:
            return None
        rows = (newest - self.memory.version <= self.max_staleness).nonzero().squeeze(1)
        return self.memory.select(rows) if len(rows) else None

    def state_dict(self) -> dict[str, Any]:
        """What of the memory is no tensor."""
        memory = self.memory
        texts = None
        if memory is not None:
            texts = {
                "uid": list(memory.uid),
                "prompts": [[message.to_dict() for message in prompt] for prompt in memory.prompts],
                "responses": list(memory.responses),
                "items": [item.to_dict() for item in memory.items],
            }
        return {"draws": self.draws, "memory": texts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.draws, texts = int(state["draws"]), state["memory"]
        self._texts = None
        if texts is not None:
            self._texts = {
                "uid": tuple(texts["uid"]),
                "prompts": tuple(prompt_of(turns) for turns in texts["prompts"]),
                "responses": tuple(texts["responses"]),
                "items": tuple(item_from_dict(item) for item in texts["items"]),
            }

    def tensors(self) -> dict[str, Any]:
        """The memory's tensors by field; empty without a memory."""
        if self.memory is None:
            return {}
        columns = {f.name: getattr(self.memory, f.name) for f in fields(RolloutBatch) if f.name not in _TEXTS}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in columns.items()}

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        """After `load_state_dict`."""
        texts = self._texts
        if texts is None:
            self.memory = None
            return
        n = len(texts["uid"])
        self.memory = RolloutBatch(**texts, **state, source=(REPLAYED,) * n, failures=((),) * n, scores=({},) * n)


def _replayable(batch: RolloutBatch) -> RolloutBatch:
    """As it is remembered: the ratio's denominator is what the row was sampled with."""
    n = len(batch)
    return batch.with_(
        source=(REPLAYED,) * n,
        failures=((),) * n,
        scores=({},) * n,
        logp_old=batch.logp_mu if batch.logp_old is not None else None,
    )


def _with_fields_of(rows: RolloutBatch, batch: RolloutBatch) -> RolloutBatch:
    """`rows` with no field that the batch does not have, so that the two can be merged."""
    changes: dict[str, Any] = {}
    for name in ("failures", "scores", "items", "source"):
        if not getattr(batch, name):
            changes[name] = ()
    for f in fields(RolloutBatch):
        row_value, batch_value = getattr(rows, f.name), getattr(batch, f.name)
        if isinstance(row_value, Tensor) and batch_value is None and f.name not in ("forced", "unfinished"):
            changes[f.name] = None
        if isinstance(row_value, Mapping):
            changes[f.name] = {key: value for key, value in row_value.items() if key in batch_value}
    return rows.with_(**changes)


class PriorityReplay(StatefulSettings, section="replay"):
    """S15. `seed` and the number of the draw decide the rows."""

    seed: int = 0
    draws: int = field(init=False, default=0)

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for the mean over all tokens, which is no mean over rows."""
        if getattr(recipe.aggregation, "mode", None) == "token-mean":
            raise BadInputError("rows are drawn, so take a mean over rows", field="aggregation.mode")

    def mix(self, batch: RolloutBatch) -> RolloutBatch:
        """The rows with other advantages; the same batch where none has a positive one."""
        weight = batch.estimated_adv.double().clamp(min=0).sum(1) / batch.lengths.clamp(min=1)
        self.draws += 1
        if not bool((weight > 0).any()):
            return batch
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.draws)
        rows = torch.multinomial(weight, len(batch), replacement=True, generator=generator)
        times = torch.bincount(rows, minlength=len(batch)).double()
        mean = float(weight[weight > 0].mean())
        return batch.with_(adv=(batch.mask * (times * mean)[:, None]).float())
