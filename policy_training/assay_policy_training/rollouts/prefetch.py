"""Rollouts of later steps, drawn by a second copy of the policy's weights while the trainer works on this step.

Covers: the frozen copy, one thread that draws in order, what is under way and the weights it is drawn with, in every
checkpoint: after a restart it is drawn again, by the same weights, to the same rows. Leaves out: what is drawn and when
(`collection`).

Determinism: all that has memory (prompts, contexts, filters, schedules, such reward sources) is asked in the trainer's
thread; the other thread only generates, and asks sources without memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy, deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from assay.models.chat.renderer import Renderer
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import item_from_dict
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.rollouts.generate import Draw, Drawer, Drawn


@dataclass
class Flight:
    """One draw under way, and the weights that it is made with."""

    draw: Draw
    version: int
    weights: Mapping[str, Tensor]
    done: Future[tuple[Drawn, dict[str, float]]]


class Ahead:
    """Carries out draws in order, in a thread of its own. `twin`: the frozen copy of `policy` that they are made by."""

    def __init__(self, policy: Policy, twin: Policy, drawer: Drawer) -> None:
        self.policy, self.twin, self.drawer = policy, twin, drawer
        self._names = list(policy.trainable())
        self._flights: deque[Flight] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollouts-ahead")
        self._loaded = -1  #: version of the twin's weights
        self._restored: list[tuple[Draw, int]] = []

    def has(self, step: int) -> bool:
        """Whether the rollouts of `step` are under way."""
        return any(flight.draw.step == step for flight in self._flights)

    def start(self, draw: Draw, version: int) -> None:
        """Draw with the policy's weights as they are now, which are of `version`, once all before it is drawn."""
        newest = self._flights[-1] if self._flights else None
        if newest is not None and newest.version == version:
            weights = newest.weights
        else:
            trainable = self.policy.trainable()
            weights = {name: trainable[name].detach().clone() for name in self._names}
        self._start(draw, version, weights)

    def take(self, step: int) -> tuple[Draw, Drawn, dict[str, float]]:
        """The rollouts of `step`, waited for, and the seconds that their making took. Raises what the draw raised."""
        flight = next(flight for flight in self._flights if flight.draw.step == step)
        drawn, seconds = flight.done.result()
        while self._flights[0] is not flight:  # left over of a step that was never trained
            self._flights.popleft()
        self._flights.popleft()
        return flight.draw, drawn, seconds

    def more(self, draw: Draw) -> tuple[Drawn, dict[str, float]]:
        """A draw by the newest weights that the twin was given, once all that is under way is drawn."""
        return self._thread.submit(lambda: self._made(draw, self._loaded)).result()

    def state_dict(self) -> dict[str, Any]:
        return {"flights": [{"version": f.version, "draw": _to_json(f.draw)} for f in self._flights]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What was under way starts with `load_tensors`."""
        for flight in self._flights:
            flight.done.cancel()
        self._flights.clear()
        self._thread.submit(self._forget).result()  # after the draw that could not be cancelled
        self._restored = [(_from_json(f["draw"]), int(f["version"])) for f in state["flights"]]

    def tensors(self) -> dict[str, Any]:
        weights = {str(flight.version): flight.weights for flight in self._flights}
        return {version: {name: w.cpu() for name, w in found.items()} for version, found in weights.items()}

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        for draw, version in self._restored:
            self._start(draw, version, state[str(version)])
        self._restored = []

    def _start(self, draw: Draw, version: int, weights: Mapping[str, Tensor]) -> None:
        def run() -> tuple[Drawn, dict[str, float]]:
            if self._loaded != version:
                self._load(weights)
                self._loaded = version
            return self._made(draw, version)

        self._flights.append(Flight(draw, version, weights, self._thread.submit(run)))

    def _forget(self) -> None:
        """The weights that the twin and the sampler have: those of a restored version may be others."""
        self._loaded, self.drawer.published = -1, None

    def _made(self, draw: Draw, version: int) -> tuple[Drawn, dict[str, float]]:
        clock = Stopwatch()
        return self.drawer(draw, self.twin, version=version, clock=clock), dict(clock.seconds)

    @torch.no_grad()
    def _load(self, weights: Mapping[str, Tensor]) -> None:
        own = dict(self.twin.model.named_parameters())
        for name, values in weights.items():
            own[name].copy_(values)


def frozen_copy(policy: Policy) -> Policy:
    """The policy with weights of its own for all that is trained; what is not trained is shared. No reference.

    Its tokenizer is a copy too: two threads may not use one.
    """
    twin = copy(policy)
    twin.tokenizer = deepcopy(policy.tokenizer)
    twin.renderer = Renderer(twin.tokenizer, max_length=policy.renderer.max_length)
    shared: dict[int, Any] = {id(p): p for p in policy.model.parameters() if not p.requires_grad}
    twin.model = deepcopy(policy.model, shared).requires_grad_(False)
    twin.has_reference, twin._reference = False, None
    return twin


def _to_json(draw: Draw) -> dict[str, Any]:
    return {
        "step": draw.step,
        "items": [item.to_dict() for item in draw.items],
        "uids": list(draw.uids),
        "seed": draw.seed,
        "sampling": asdict(draw.sampling),
    }


def _from_json(payload: Mapping[str, Any]) -> Draw:
    items = tuple(item_from_dict(item) for item in payload["items"])
    sampling = Sampling(**payload["sampling"])
    return Draw(int(payload["step"]), items, tuple(payload["uids"]), int(payload["seed"]), sampling)
