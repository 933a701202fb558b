"""Generates rollouts of later steps, by a frozen copy of the policy, while the trainer works on this step.

Covers: the frozen copy, one thread that carries out requests in order; requests in flight and the weights they use are
in every checkpoint, so that a resumed run generates the same rows. Leaves out: what is requested and when
(`collector`).

Determinism: everything with memory (prompts, contexts, filters, schedules, such reward sources) is called in the
trainer's thread; the other thread only generates, and calls sources without memory.
"""

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
from assay_policy_training.rollouts.generate import RolloutGenerator, RolloutRequest, Rollouts


@dataclass
class InFlight:
    """A request that is being carried out or waits for its turn, and the weights that it uses."""

    request: RolloutRequest
    version: int
    weights: Mapping[str, Tensor]
    future: Future[tuple[Rollouts, dict[str, float]]]


class RolloutPrefetcher:
    """Carries out requests in order, in its own thread, with `rollout_policy`, the frozen copy of `policy`."""

    def __init__(self, policy: Policy, rollout_policy: Policy, generator: RolloutGenerator) -> None:
        self.policy, self.rollout_policy, self.generator = policy, rollout_policy, generator
        self._names = list(policy.trainable())
        self._in_flight: deque[InFlight] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollout-prefetch")
        self._loaded = -1  #: version of the rollout policy's weights
        self._restored: list[tuple[RolloutRequest, int]] = []

    def has(self, step: int) -> bool:
        """Whether the rollouts of `step` are in flight."""
        return any(flight.request.step == step for flight in self._in_flight)

    def start(self, request: RolloutRequest, version: int) -> None:
        """Queue a request that uses the policy's present weights, which have that version."""
        newest = self._in_flight[-1] if self._in_flight else None
        if newest is not None and newest.version == version:
            weights = newest.weights
        else:
            trainable = self.policy.trainable()
            weights = {name: trainable[name].detach().clone() for name in self._names}
        self._start(request, version, weights)

    def take(self, step: int) -> tuple[RolloutRequest, Rollouts, dict[str, float]]:
        """Wait for the rollouts of `step`; also the seconds that they took. Raises what the request raised."""
        flight = next(flight for flight in self._in_flight if flight.request.step == step)
        rollouts, seconds = flight.future.result()
        while self._in_flight[0] is not flight:  # of a step that was never trained
            self._in_flight.popleft()
        self._in_flight.popleft()
        return flight.request, rollouts, seconds

    def generate_now(self, request: RolloutRequest) -> tuple[Rollouts, dict[str, float]]:
        """Carry out a request with the newest weights of the rollout policy, once all in flight is done."""
        return self._thread.submit(lambda: self._generate(request, self._loaded)).result()

    def state_dict(self) -> dict[str, Any]:
        return {"flights": [{"version": f.version, "draw": _request_to_json(f.request)} for f in self._in_flight]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The requests of the state start with `load_tensors`."""
        for flight in self._in_flight:
            flight.future.cancel()
        self._in_flight.clear()
        self._thread.submit(self._forget_weights).result()  # after a request that could not be cancelled
        self._restored = [(_request_from_json(f["draw"]), int(f["version"])) for f in state["flights"]]

    def tensors(self) -> dict[str, Any]:
        return {str(flight.version): dict(flight.weights) for flight in self._in_flight}

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        for request, version in self._restored:
            self._start(request, version, state[str(version)])
        self._restored = []

    def _start(self, request: RolloutRequest, version: int, weights: Mapping[str, Tensor]) -> None:
        def run() -> tuple[Rollouts, dict[str, float]]:
            if self._loaded != version:
                self._load(weights)
                self._loaded = version
            return self._generate(request, version)

        self._in_flight.append(InFlight(request, version, weights, self._thread.submit(run)))

    def _forget_weights(self) -> None:
        """After a restore, weights of the same version may differ: load and publish them again."""
        self._loaded, self.generator.published = -1, None

    def _generate(self, request: RolloutRequest, version: int) -> tuple[Rollouts, dict[str, float]]:
        clock = Stopwatch()
        return self.generator(request, self.rollout_policy, version=version, clock=clock), dict(clock.seconds)

    @torch.no_grad()
    def _load(self, weights: Mapping[str, Tensor]) -> None:
        parameters = dict(self.rollout_policy.model.named_parameters())
        for name, values in weights.items():
            parameters[name].copy_(values)


def frozen_copy(policy: Policy) -> Policy:
    """The policy with its own copy of all trained weights; the others are shared. It has no reference.

    Its tokenizer is a copy too: two threads may not use one.
    """
    frozen = copy(policy)
    frozen.tokenizer = deepcopy(policy.tokenizer)
    frozen.renderer = Renderer(frozen.tokenizer, max_length=policy.renderer.max_length)
    shared: dict[int, Any] = {id(p): p for p in policy.model.parameters() if not p.requires_grad}
    frozen.model = deepcopy(policy.model, shared).requires_grad_(False)
    frozen.has_reference, frozen._reference = False, None
    return frozen


def _request_to_json(request: RolloutRequest) -> dict[str, Any]:
    return {
        "step": request.step,
        "items": [item.to_dict() for item in request.items],
        "uids": list(request.uids),
        "seeds": list(request.seeds),
        "sampling": asdict(request.sampling),
    }


def _request_from_json(payload: Mapping[str, Any]) -> RolloutRequest:
    items = tuple(item_from_dict(item) for item in payload["items"])
    sampling = Sampling(**payload["sampling"])
    return RolloutRequest(int(payload["step"]), items, tuple(payload["uids"]), tuple(payload["seeds"]), sampling)
