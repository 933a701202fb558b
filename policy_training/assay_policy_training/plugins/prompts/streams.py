"""Prompts by an entry of theirs: mixed by weights, one list after another, or copies of a few.

Mixed: the data source they came from (`meta["source"]`) is drawn by fixed weights, each in its own endless shuffled
epochs, whose places are in a checkpoint. Leaves out: weights that learn (`dump`).

Stages: a curriculum by step. Covers: which of the prompts a step draws from, by the value of one of their entries; each
stage in endless shuffled epochs. Leaves out: stages by the length of responses (a schedule of `max_new_tokens`), order
by difficulty (`gain_rl`).

One-shot RLVR: a step's prompts are copies of one, two or four examples. Covers: the copies (each is a separate group:
the collector names groups by index, so a thousand rows never become one group), choosing the examples by row or by how
much their training accuracy varied in an earlier run. Leaves out: that earlier run. Filters that drop solved groups
must be off: training continues after the example is solved. Source: arXiv 2504.20571, code ypwang61/One-Shot-RLVR read.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import pvariance
from typing import Annotated, Any

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts.source import ShuffledPrompts, prompts_digest
from assay_policy_training.plugins.protocols import RecipeView, StepReport


def tag_of(item: PromptItem, key: str = "source") -> str:
    """The prompt's entry `key`, empty where it has none."""
    value = item.meta.get(key)
    return "" if value is None else str(value)


class PromptStreams:
    """Named sources of prompts. JSON-ready state; the prompts themselves are checked by their digest."""

    def __init__(self, items: Sequence[PromptItem], *, seed: int, key: str = "source") -> None:
        """Raises BadInputError for a prompt that does not say where it comes from."""
        by_name: dict[str, list[PromptItem]] = {}
        for row, item in enumerate(items, start=1):
            if not (name := tag_of(item, key)):
                raise BadInputError("missing: these prompts are drawn by it", row=row, field=key)
            by_name.setdefault(name, []).append(item)
        if not by_name:
            raise BadInputError("there are no prompts", field="prompts")
        self.streams = {
            name: ShuffledPrompts(rows, seed=random.Random(f"{seed}/{name}").getrandbits(48))
            for name, rows in sorted(by_name.items())
        }
        self.seed = seed
        self.drawn = 0  #: prompts drawn so far: makes every draw's seed another

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.streams)

    def draw(self, weights: Mapping[str, float], n: int) -> list[PromptItem]:
        """n prompts, the source of each drawn by `weights` (need not sum to 1)."""
        chosen = []
        for _ in range(n):
            source = random.Random(f"{self.seed}/draw/{self.drawn}").choices(
                self.names, [weights.get(name, 0.0) for name in self.names]
            )[0]
            self.drawn += 1
            chosen += self.streams[source].next(1)
        return chosen

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "streams": {name: s.state_dict() for name, s in self.streams.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts are not those that the state is about."""
        if state["streams"].keys() != self.streams.keys():
            raise BadInputError("these are not the prompts that the interrupted run used", field="prompts")
        self.drawn = int(state["drawn"])
        for name, stream in self.streams.items():
            stream.load_state_dict(state["streams"][name])


class MixedPrompts:
    """S0, opened: a mixture whose weights stay."""

    def __init__(self, streams: PromptStreams, weights: Mapping[str, float]) -> None:
        self.streams, self.weights = streams, dict(weights)

    def next(self, n: int) -> list[PromptItem]:
        return self.streams.draw(self.weights, n)

    def observe(self, report: StepReport) -> None:
        """This source does not adapt."""

    def state_dict(self) -> dict[str, Any]:
        return self.streams.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.streams.load_state_dict(state)


class Mixed(RecipeSettings, section="source"):
    """S0: each prompt's source is drawn by `weights` (name -> weight); none given: by the number of its prompts."""

    weights: Mapping[str, float] = field(default_factory=dict)
    key: str = "source"

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise BadInputError(f"must be a number from 0, not {weight}", field=f"source.weights.{name}")
        if self.weights and not any(self.weights.values()):
            raise BadInputError("at least one must be above 0", field="source.weights")

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: object = None) -> MixedPrompts:
        """Raises BadInputError for a weight of a source that no prompt names."""
        streams = PromptStreams(items, seed=seed, key=self.key)
        if unknown := sorted(self.weights.keys() - set(streams.names)):
            raise BadInputError(
                f"no prompt of source {unknown[0]!r}; there are {', '.join(streams.names)}", field="source.weights"
            )
        sizes = {name: float(len(stream.items)) for name, stream in streams.streams.items()}
        return MixedPrompts(streams, self.weights or sizes)


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


class PromptStages(RecipeSettings, section="source"):
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


class RepeatedPrompts:
    """S0, opened: the examples in turn, endlessly."""

    def __init__(self, items: Sequence[PromptItem]) -> None:
        self.items = list(items)
        self.position = 0

    def next(self, n: int) -> list[PromptItem]:
        drawn = [self.items[(self.position + number) % len(self.items)] for number in range(n)]
        self.position = (self.position + n) % len(self.items)
        return drawn

    def observe(self, report: StepReport) -> None:
        """This source does not adapt."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "prompts": prompts_digest(self.items)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts are not those that the state is about."""
        if state["prompts"] != prompts_digest(self.items):
            raise BadInputError("these are not the prompts that the interrupted run used", field="prompts")
        self.position = int(state["position"])


def most_varied(items: Sequence[PromptItem], count: int, key: str) -> list[int]:
    """Rows of the prompts whose recorded accuracies (`meta[key]`, one number an epoch) varied most, in falling order.

    Raises BadInputError where fewer than `count` prompts have a history of two numbers or more.
    """
    spread = {}
    for row, item in enumerate(items):
        history = item.meta.get(key)
        if isinstance(history, list | tuple) and len(history) > 1:
            spread[row] = pvariance([float(value) for value in history])
    if len(spread) < count:
        raise BadInputError(f"{len(spread)} prompts have a history of accuracies, {count} are needed", field=key)
    return sorted(spread, key=lambda row: (-spread[row], row))[:count]


class OneShot(RecipeSettings, section="source"):
    """S0: the examples are the prompts of these `rows` (from 0); none given: the `count` most varied by `history`."""

    rows: tuple[int, ...] = (0,)
    count: Annotated[int, Ge(1)] = 1
    history: str = "accuracy_history"

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for a filter that refills until groups are mixed: solved examples stay in training."""
        if any(plugin.rounds > 1 for plugin in recipe.filters):
            raise BadInputError("one shot has nothing else to draw; take filters that drop rows out", field="filters")

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: object = None) -> RepeatedPrompts:
        """Raises BadInputError for a row that is not there."""
        rows = list(self.rows) or most_varied(items, self.count, self.history)
        for row in rows:
            if not 0 <= row < len(items):
                raise BadInputError(f"there are {len(items)} prompts, no row {row} (from 0)", field="source.rows")
        return RepeatedPrompts([items[row] for row in rows])
