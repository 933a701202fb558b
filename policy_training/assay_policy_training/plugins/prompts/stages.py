"""Lists of prompts that follow each other: a curriculum by step.

Covers: which of the prompts a step draws from, by the value of one of their entries; each stage in endless shuffled
epochs. Leaves out: stages by the length of responses (a schedule of `max_new_tokens`), order by difficulty (`gain_rl`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.prompts.streams import tag_of
from assay_policy_training.plugins.protocols import StepReport


@dataclass(frozen=True)
class PromptStage:
    """The prompts whose entry (`PromptStages.key`) is one of `values`; empty = all. `steps`: 0 = to the end."""

    values: tuple[str, ...] = ()
    steps: int = 0


class StagedPrompts:
    """S0, opened: stage after stage; the last one stays."""

    def __init__(self, sources: Sequence[ShuffledPrompts], ends: Sequence[int]) -> None:
        """`ends`: the last step (1-based) of each stage; 0 = it stays."""
        self.sources, self.ends = list(sources), list(ends)
        self.step = 1  #: that is being drawn for

    @property
    def stage(self) -> int:
        """Number of the present stage, from 0."""
        return next((i for i, end in enumerate(self.ends) if end == 0 or self.step <= end), len(self.ends) - 1)

    def next(self, n: int) -> list[PromptItem]:
        return self.sources[self.stage].next(n)

    def observe(self, report: StepReport) -> None:
        self.step = report.step + 1

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "stages": [source.state_dict() for source in self.sources]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts or the stages are not those that the state is about."""
        if len(state["stages"]) != len(self.sources):
            raise BadInputError("these are not the stages that the interrupted run had", field="source.stages")
        self.step = int(state["step"])
        for source, saved in zip(self.sources, state["stages"], strict=True):
            source.load_state_dict(saved)


@dataclass(frozen=True)
class PromptStages:
    """S0: `stages` in order; a prompt belongs to those that name the value of its entry `key`."""

    stages: tuple[PromptStage, ...] = (PromptStage(),)
    key: str = "source"

    def __post_init__(self) -> None:
        if not self.stages:
            raise BadInputError("at least one", field="source.stages")
        for number, stage in enumerate(self.stages[:-1]):
            if stage.steps < 1:
                raise BadInputError("every stage but the last has an end", field=f"source.stages.{number}.steps")

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: object = None) -> StagedPrompts:
        """Raises BadInputError for a stage that no prompt belongs to."""
        sources, ends, end = [], [], 0
        for number, stage in enumerate(self.stages):
            chosen = [item for item in items if not stage.values or tag_of(item, self.key) in stage.values]
            if not chosen:
                raise BadInputError("no prompt belongs to it", field=f"source.stages.{number}.values")
            sources.append(ShuffledPrompts(chosen, seed=seed + number))
            end = end + stage.steps if stage.steps else 0
            ends.append(end)
        return StagedPrompts(sources, ends)
