"""Measurements of a training: of one step, over forward passes and processes, and of the run.

Leaves out: held-out metrics (`eval_step.py`), the rows of metrics.jsonl (`training/loop.py`).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from assay.models.devices import read_values
from assay_rm_training.training.early_stopping import BestEvaluation
from assay_rm_training.training.resume_state import Position


@dataclass(frozen=True)
class TrainingSummary:
    """Summary of a run. `steps`: made, including those before a resume. `items`: seen, over all epochs.
    `tokens` counts every sequence in full; `computed_tokens`, what went through the model: padding added, common
    beginnings once; `shared_share`: of the tokens that this saved. `wait_share`: of the time that a step waited for its
    data. Rates, `computed_tokens`, shares and `peak_memory` (bytes, the largest process): since the last start.
    `processes`, `parallel`: how the work was divided. `choice`: the best evaluation, if any; `kept_step`: the step of
    the final weights."""

    steps: int
    items: int
    tokens: int
    seconds: float
    items_per_s: float
    tokens_per_s: float
    computed_tokens: int
    padded_share: float
    first_loss: float
    last_loss: float
    shared_share: float = 0.0
    wait_share: float = 0.0
    clip_share: float = 0.0
    peak_memory: int = 0
    processes: int = 1
    parallel: str = "none"
    planned_steps: int = 0
    kept_step: int = 0
    choice: BestEvaluation | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StepMeasurement:
    """One step: weighted mean loss, the task's figures as means, mean and deviation of the rewards of each side, the
    gradient's norm before clipping, tokens as in `BatchLoss`."""

    loss: float
    figures: dict[str, float]
    grad_norm: float
    items: int
    tokens: int
    computed: int
    padding: int

    @property
    def shared_share(self) -> float:
        """Share of the tokens that were not computed because another sequence of their item has the same prefix."""
        return 1.0 - (self.computed - self.padding) / max(self.tokens, 1)


class StepSums:
    """Measurements of a step, added up over forward passes, read from the device at once, added up over processes."""

    def __init__(self) -> None:
        self._unread: list[tuple[list[str], int, list[torch.Tensor]]] = []
        self.loss = 0.0
        self.figures = Counter[str]()
        self.each: dict[str, list[float]] = {}
        self.counts = (0, 0, 0)

    def add(
        self,
        loss: torch.Tensor,
        figures: Mapping[str, torch.Tensor],
        each: Mapping[str, torch.Tensor],
        counts: tuple[int, int, int],
    ) -> None:
        tensors = [tensor.detach() for tensor in (loss, *figures.values(), *each.values())]
        self._unread.append(([*figures, *each], len(figures), tensors))
        self.counts = (self.counts[0] + counts[0], self.counts[1] + counts[1], self.counts[2] + counts[2])

    def read(self) -> "StepSums":
        """Itself, with the values of all that was added."""
        values = iter(read_values([tensor for _, _, tensors in self._unread for tensor in tensors]))
        for names, figures, _ in self._unread:
            self.loss += next(values)[0]
            self.figures.update({name: next(values)[0] for name in names[:figures]})
            for name in names[figures:]:
                self.each.setdefault(name, []).extend(next(values))
        self._unread = []
        return self

    def merge(self, other: "StepSums") -> None:
        self.loss += other.loss
        self.figures.update(other.figures)
        for name, values in other.each.items():
            self.each.setdefault(name, []).extend(values)
        self.counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))  # type: ignore[assignment]

    def spread(self) -> dict[str, float]:
        """Mean and deviation of each per-item measurement."""
        moments: dict[str, float] = {}
        for name, values in self.each.items():
            moments |= {f"{name}_mean": float(np.mean(values)), f"{name}_std": float(np.std(values))}
        return moments


class RunTotals:
    """The steps since the last start, added up."""

    def __init__(self) -> None:
        self._steps = self._items = self._tokens = self._computed = self._padding = self._clipped = 0
        self._waited = 0.0
        self._first = self._last = math.nan

    def add(self, step: StepMeasurement, parts: dict[str, float], *, clipped: bool) -> None:
        self._steps, self._items = self._steps + 1, self._items + step.items
        self._tokens, self._computed = self._tokens + step.tokens, self._computed + step.computed
        self._padding, self._clipped = self._padding + step.padding, self._clipped + clipped
        self._waited += parts.get("data", 0.0)
        self._first, self._last = (step.loss if math.isnan(self._first) else self._first), step.loss

    def summary(self, position: Position, began_at: Position) -> TrainingSummary:
        seconds = max(position.seconds - began_at.seconds, 1e-9)
        return TrainingSummary(
            steps=position.step,
            items=0,
            tokens=position.tokens,
            seconds=position.seconds,
            items_per_s=self._items / seconds,
            tokens_per_s=self._tokens / seconds,
            computed_tokens=self._computed,
            padded_share=self._padding / max(self._computed, 1),
            first_loss=self._first,
            last_loss=self._last,
            shared_share=1.0 - (self._computed - self._padding) / self._tokens if self._tokens else 0.0,
            wait_share=self._waited / seconds,
            clip_share=self._clipped / max(self._steps, 1),
        )
