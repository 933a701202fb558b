"""Prompts by the data source they came from (`meta["source"]`), each source in its own endless shuffled epochs.

Covers: splitting the prompts, drawing from one source, the places of all of them for a checkpoint, and the mixture with
fixed weights. Leaves out: weights that learn (`dump`), lists that follow each other (`stages`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import StepReport


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


@dataclass(frozen=True)
class Mixed:
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
