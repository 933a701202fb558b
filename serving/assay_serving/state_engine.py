"""Scalar reward models whose reward is more than one number of the head at the conversation's end.

Covers: what such engines share: loading, checks and failures as `TransformersScorer`, hidden states at the places that
an item is read at, memory that runs out. Leaves out: which places and what is made of them (`step_engine`,
`ratings_engine`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from assay.errors import BadInputError
from assay.models.packing import PackedHidden, TokenGroup, forward, forward_rows, group_of
from assay.models.pooling import HEAD
from assay.models.renderer import Encoded, Renderer
from assay.models.spec import RewardModelSpec
from assay.progress import Advance, silent
from assay.score import ScoreFailure, ScoreResult
from assay_serving.batching import plan_batches
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.transformers_engine import TransformersScorer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Reading(NamedTuple):
    """One conversation and the places in it, at least one, whose hidden states are wanted."""

    conversation: Encoded
    places: tuple[int, ...]


class StateScorer(ABC):
    """An engine over the stock one. Safe to call from several threads: they take turns."""

    def __init__(self, model: PreTrainedModel, renderer: Renderer, spec: RewardModelSpec, *, name: str) -> None:
        self._take(TransformersScorer(model, renderer, spec, name=name))

    def _take(self, stock: TransformersScorer) -> None:
        self._stock = stock
        self._lock = threading.Lock()
        self._forward: Callable[[Any, Sequence[TokenGroup]], PackedHidden] = forward
        self.check(stock.spec)

    @classmethod
    def load(cls, name: str, **options: Any) -> Self:
        """As `TransformersScorer.load`, with its options."""
        made = cls.__new__(cls)
        made._take(TransformersScorer.load(name, **options))
        return made

    @abstractmethod
    def check(self, spec: RewardModelSpec) -> None:
        """Raises BadInputError for a model that is not this engine's."""

    @abstractmethod
    def read(self, item: ScoreItem, conversation: Encoded) -> Reading:
        """Raises BadInputError for an item that cannot be read."""

    @abstractmethod
    def reward(self, outputs: torch.Tensor) -> float:
        """Of the head's outputs [places, labels] at an item's places."""

    @property
    def spec(self) -> RewardModelSpec:
        return self._stock.spec

    @property
    def renderer(self) -> Renderer:
        return self._stock.renderer

    @property
    def info(self) -> ModelInfo:
        return self._stock.info

    def other_ways(self) -> Iterator[tuple[str, StateScorer]]:
        """Rows of their own, padded on either side, must give the scores of the packed pass."""
        for name, run in (
            ("packed = padded", forward_rows),
            ("left = right padding", partial(forward_rows, left=True)),
        ):
            other = copy(self)
            other._forward = run
            yield name, other

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Failure codes: those of `TransformersScorer`."""
        readings = [self._reading(item) for item in items]
        return [
            found if isinstance(found, ScoreFailure) else self._stock.result(reading.conversation, self.reward(found))
            for reading, found in self._paired(readings, self.outputs(readings, on_progress))
        ]

    @staticmethod
    def _paired(
        readings: Sequence[Reading | ScoreFailure], outputs: Sequence[torch.Tensor | ScoreFailure]
    ) -> Iterator[tuple[Reading, torch.Tensor | ScoreFailure]]:
        for reading, output in zip(readings, outputs, strict=True):
            if isinstance(reading, ScoreFailure):
                yield Reading(Encoded((), 0), ()), reading
            else:
                yield reading, output

    def outputs(
        self, readings: Sequence[Reading | ScoreFailure], on_progress: Advance = silent
    ) -> list[torch.Tensor | ScoreFailure]:
        """The head's outputs [places, labels] in float32 for each reading, or its failure."""
        found: dict[int, torch.Tensor | ScoreFailure] = {}
        good: list[tuple[int, Reading]] = []
        for place, reading in enumerate(readings):
            if isinstance(reading, ScoreFailure):
                found[place] = reading
            else:
                good.append((place, reading))
        on_progress(len(found))
        with self._lock:
            for batch in plan_batches([len(r.conversation) for _, r in good], self._stock.token_budget):
                part = [good[i] for i in batch]
                for (place, _), output in zip(part, self._states([r for _, r in part]), strict=True):
                    found[place] = output
                on_progress(len(part))
        return [found[place] for place in range(len(readings))]

    def failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self.info.name)

    def _reading(self, item: ScoreItem) -> Reading | ScoreFailure:
        conversation = self._stock.encode(item)
        if isinstance(conversation, ScoreFailure):
            return conversation
        try:
            return self.read(item, conversation)
        except BadInputError as error:
            return self.failure("bad_input", str(error))

    def _states(self, readings: Sequence[Reading]) -> list[torch.Tensor | ScoreFailure]:
        import torch

        try:
            return self._run(readings)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(readings) == 1:
            tokens = len(readings[0].conversation)
            return [self.failure("backend", f"out of memory on a conversation of {tokens} tokens")]
        middle = len(readings) // 2
        return self._states(readings[:middle]) + self._states(readings[middle:])

    def _run(self, readings: Sequence[Reading]) -> list[torch.Tensor | ScoreFailure]:
        import torch
        import torch.nn.functional as F

        model = self._stock.model
        head = getattr(model, HEAD)
        with torch.inference_mode():
            hidden = self._forward(model, [group_of([r.conversation.ids]) for r in readings])
            states = torch.cat([hidden.branch_states(n)[list(r.places)] for n, r in enumerate(readings)])
            bias = head.bias.float() if head.bias is not None else None
            outputs = F.linear(states.float(), head.weight.float(), bias).cpu()
        parts = torch.split(outputs, [len(r.places) for r in readings])
        return [
            part if bool(torch.isfinite(part).all()) else self.failure("non_finite", "the model's answer is not finite")
            for part in parts
        ]
