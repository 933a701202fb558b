"""Rollouts that are generated beside training: actors in threads or processes, rewards, and what a checkpoint holds.

Covers: publishing weights, calling idle actors with what the buffer gives them, hiring another where one is lost,
rewards of units that are generated while others continue, a snapshot of finished and unfinished units. Leaves out:
every decision of who generates what (`buffer`), and what is requested (`collector`).

Determinism: all with memory (prompts, contexts, filters, schedules, such reward sources) is called in the trainer's
thread. With `lag`, rows depend on nothing that is a matter of time; with `staleness`, their weights' version does.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from assay.compute.actors import Actor, ActorLostError
from assay.compute.executor import open_actor
from assay.errors import BackendError
from assay.system import tracing
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.protocols import ActorEngines, Rewards, RewardSource
from assay_policy_training.plugins.samplers.carried import CarriedRow, empty_row, row_from_dict
from assay_policy_training.recipe.loading import recipe_to_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.actor import TARGET, RolloutActor
from assay_policy_training.rollouts.buffer import RolloutBuffer, RolloutUnit
from assay_policy_training.rollouts.generate import (
    RolloutRequest,
    Rollouts,
    merge_rollouts,
    needs_whole_batch,
    score_completed,
)
from assay_policy_training.rollouts.relay import MemoryRelay, Publication, Relay, open_relay, probe_logp
from assay_policy_training.rollouts.rollout_state import (
    request_from_dict,
    request_to_dict,
    rollouts_from_dict,
    rollouts_to_dict,
)

HIRE_EVERY_S = 2.0


class ThreadActor:
    """See `Actor`: an object of this process, called in a thread."""

    def __init__(self, actor: RolloutActor) -> None:
        self.actor = actor

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.actor, method)(*arguments)

    def close(self) -> None:
        pass


class RolloutPool:
    """`hire`: makes the actor of an index. `relay`: by which they get weights. `probed`: whether they check them.

    Of several processes the first has the actors; the others make the same calls, and get its rollouts.
    """

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        rewards: Sequence[RewardSource],
        hire: Callable[[int], Actor],
        relay: Relay,
        *,
        probed: bool,
    ) -> None:
        asynchrony, sampling = recipe.asynchrony, recipe.sampling
        self.asynchrony, self.policy, self.rewards, self.hire, self.relay = asynchrony, policy, rewards, hire, relay
        self.probed = probed
        self.buffer = RolloutBuffer(
            staleness=asynchrony.ahead,
            fixed=not asynchrony.staleness,
            partial=asynchrony.partial,
            capacity=asynchrony.groups * sampling.group_size,
        )
        count = max(1, asynchrony.actors)
        self._actors: list[Actor | None] = [None] * count
        self._idle: set[int] = set()  #: actors without a call
        self._hired = self._closed = False
        self._publications: dict[int, Publication] = {}
        self._requests: dict[int, tuple[int, RolloutRequest]] = {}  #: step -> its batch in the buffer, the request
        self._traces: dict[int, str] = {}  #: batch -> traceparent of the step that submitted it
        self._calls = ThreadPoolExecutor(count, thread_name_prefix="rollout-actor")
        self._scoring = ThreadPoolExecutor(count, thread_name_prefix="rollout-rewards")
        self._source_locks = [threading.Lock() for _ in rewards]
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._epoch = 0  #: checkpoints restored: what began before is of no interest
        self._paused = True  #: until weights are published
        self._tensors: dict[str, Any] = {}  #: of the newest snapshot

    def publish(self, step: int, version: int) -> None:
        """The policy's present weights, with which `step` begins."""
        newest = self._publications.get(self.buffer.published)
        if newest is None or newest.version != version or self._paused:
            newest = self._published(f"{self._epoch}-{step}", version)
        with self._changed:
            self._publications[step] = newest
            self.buffer.publish(step)
            self._paused = False
            self._drop_publications()
            if not self._hired and self.policy.parallel.main:
                self._hired = True
                for index in range(len(self._actors)):
                    self._calls.submit(self._hire, index)
            self._dispatch()

    def submit(self, step: int, request: RolloutRequest) -> None:
        """Rollouts that `step` begins with."""
        self._requests[step] = (self._submit(step, request, urgent=False), request)

    def has(self, step: int) -> bool:
        return step in self._requests

    def admits(self, step: int) -> bool:
        return self.buffer.admits(step)

    def take(self, step: int) -> tuple[RolloutRequest, Rollouts, dict[str, float]]:
        """Wait for the rollouts of `step`; also the seconds that they took. Raises what actors and sources raised."""
        batch, request = self._requests.pop(step)
        return request, *self._wait(batch)

    def generate_now(self, step: int, request: RolloutRequest) -> Rollouts:
        """Rollouts of the newest weights, before all others."""
        return self._wait(self._submit(step, request, urgent=True))[0]

    def close(self) -> None:
        """End the actors."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._close_actors()
        self._calls.shutdown(cancel_futures=True)
        self._close_actors()  # those that were being hired
        self._scoring.shutdown(cancel_futures=True)
        if self.policy.parallel.main:
            self.relay.close()

    def _close_actors(self) -> None:
        for actor in self._actors:
            if actor is not None:
                actor.close()

    def state_dict(self) -> dict[str, Any]:
        """With `tensors`, a snapshot of one moment: finished units with their rows and rewards, the others with the
        rows they have, and the weights that those continue with."""
        with self._changed:
            units = [unit for unit in self.buffer.units if not unit.urgent]
            numbers = {u.publication for u in units if u.outcome is None and u.publication is not None}
            weights = {str(number): dict(self._publications[number].weights) for number in numbers}
            self._tensors = {
                "weights": weights,
                "finished": {str(u.number): rollouts_to_dict(u.outcome) for u in units if u.outcome is not None},
                "progress": {str(u.number): [row.columns() for row in u.progress] for u in units if u.progress},
            }
            return {
                "published": self.buffer.published,
                "batches": self.buffer.batches,
                "versions": {str(number): self._publications[number].version for number in numbers},
                "requests": [[step, batch, request_to_dict(r)] for step, (batch, r) in self._requests.items()],
                "units": [_unit_to_dict(unit) for unit in units],
            }

    def tensors(self) -> dict[str, Any]:
        """Of the newest `state_dict`."""
        return self._tensors

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with self._changed:
            self._epoch += 1
            self._error, self._paused = None, True
            self._requests = {step: (batch, request_from_dict(r)) for step, batch, r in state["requests"]}
            self.buffer.load([_unit_from_dict(payload) for payload in state["units"]], state)
            self._restored = state["versions"]

    def load_tensors(self, state: Mapping[str, Any]) -> None:
        with self._changed:
            for number, weights in state["weights"].items():
                publication = self._published(f"{self._epoch}-{number}", self._restored[number], weights)
                self._publications[int(number)] = publication
            for unit in self.buffer.units:
                if (payload := state["finished"].get(str(unit.number))) is not None:
                    unit.outcome, unit.generated = rollouts_from_dict(payload), True
                elif (columns := state["progress"].get(str(unit.number))) is not None:
                    unit.progress = [replace(row, **c) for row, c in zip(unit.progress, columns, strict=True)]

    def _published(self, key: str, version: int, weights: Mapping[str, Any] | None = None) -> Publication:
        """Of the policy's weights, or of others. All processes call this."""
        probe: list[float] = []
        if weights is None:
            parallel = self.policy.parallel
            collected = ((name, parallel.collect(p)) for name, p in self.policy.trainable().items())
            weights = {name: p.detach().clone() for name, p in collected if p is not None}  # one at a time
            if self.probed:
                probe = probe_logp(self.policy)
                weights = {name: values.cpu() for name, values in weights.items()}
        handle = self.relay.put(key, weights) if self.policy.parallel.main else None
        return Publication(key, version, weights, handle, probe)

    def _drop_publications(self) -> None:
        used = self.buffer.publications()
        dropped = [self._publications.pop(number) for number in self._publications.keys() - used]
        handles = {id(publication.handle) for publication in self._publications.values()}
        for publication in {p.key: p for p in dropped}.values():
            if publication.handle is not None and id(publication.handle) not in handles:
                self.relay.drop(publication.handle)

    def _submit(self, step: int, request: RolloutRequest, *, urgent: bool) -> int:
        size = request.sampling.group_size
        groups = self.asynchrony.groups
        if not self.asynchrony.actors:
            groups = max(1, -(-len(request.items) // self.asynchrony.chunks))
        parts = [request.part(slice(i, i + groups)) for i in range(0, len(request.items), groups)]
        with self._changed:
            batch = self.buffer.submit(step, [(part, len(part.items) * size) for part in parts], urgent=urgent)
            self._traces[batch] = tracing.headers().get("traceparent", "")
            self._dispatch()
        return batch

    def _wait(self, batch: int) -> tuple[Rollouts, dict[str, float]]:
        parallel, rollouts = self.policy.parallel, None
        if parallel.main:
            with self._changed:
                self._changed.wait_for(lambda: self._error is not None or self.buffer.ready(batch))
                if self._error is not None:
                    raise self._error
                units = self.buffer.consume(batch)
                self._traces.pop(batch, None)
                self._drop_publications()
            seconds: dict[str, float] = defaultdict(float)
            for unit in units:
                for stage, unit_seconds in unit.seconds.items():
                    seconds[stage] += unit_seconds
            rollouts = (merge_rollouts([unit.outcome for unit in units]), dict(seconds))
        else:
            self.buffer.forget(batch)
            self._traces.pop(batch, None)
        return parallel.share(rollouts)

    def _dispatch(self) -> None:
        """Give idle actors something to do. Called with the lock."""
        if self._paused or self._closed or self._error is not None:
            return
        for index in sorted(self._idle):
            if units := self.buffer.take(str(index)):
                self._idle.discard(index)
                self._calls.submit(self._run, index, units, self._publication(units), self._epoch)

    def _publication(self, units: Sequence[RolloutUnit]) -> Publication:
        assert units[0].publication is not None
        return self._publications[units[0].publication]

    def _hire(self, index: int) -> None:
        """Make the actor of that index, in its thread; where there is no room for it, or its engine does not answer,
        again, as long as others work."""
        while not self._closed:
            try:
                self._actors[index] = self.hire(index)
                break
            except ActorLostError as error:
                if not any(self._actors):
                    self._fail(error)
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, HIRE_EVERY_S)
            except BaseException as error:
                self._fail(error)
                return
        with self._changed:
            self._idle.add(index)
            self._dispatch()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _run(self, index: int, units: list[RolloutUnit], publication: Publication, epoch: int) -> None:
        """One call of an actor, in its thread."""
        clock, actor = Stopwatch(), self._actors[index]
        assert actor is not None
        try:
            with clock("sample"):
                answers = self._called(actor, units, publication)
        except ActorLostError:
            actor.close()
            self._actors[index] = None
            with self._changed:
                if epoch == self._epoch and not self._closed:
                    self._lose(index)
                self._dispatch()
            self._hire(index)
            return
        except BaseException as error:
            if epoch == self._epoch:  # else it may be that its weights were withdrawn
                self._fail(error)
            answers = []
        batches: list[tuple[RolloutUnit, RolloutBatch]] = []
        with self._changed:
            if epoch == self._epoch:
                for unit, (rows, under_way, batch) in zip(units, answers, strict=False):
                    self.buffer.returned(unit, under_way, rows)
                    unit.seconds["sample"] = unit.seconds.get("sample", 0.0) + clock.seconds["sample"] / len(units)
                    if batch is not None:
                        batches.append((unit, batch))
            self._idle.add(index)
            self._dispatch()
        for unit, batch in batches:
            self._scoring.submit(self._score, unit, batch, epoch)

    def _lose(self, index: int) -> None:
        try:
            self.buffer.lose(str(index))
        except BackendError as error:
            self._fail(error)

    def _called(
        self, actor: Actor, units: list[RolloutUnit], publication: Publication
    ) -> list[tuple[list[CarriedRow] | None, int, RolloutBatch | None]]:
        weights = (publication.handle, publication.key, publication.version, publication.probe)
        if not self.asynchrony.window:
            [unit] = units
            return [(None, 0, actor.call("generate", *weights, unit.request))]
        rows = [(unit.progress or _begun(unit.request), unit.request.sampling) for unit in units]
        answers: list[tuple[list[CarriedRow] | None, int, RolloutBatch | None]] = actor.call(
            "extend", *weights, rows, self.asynchrony.window
        )
        return answers

    def _score(self, unit: RolloutUnit, batch: RolloutBatch, epoch: int) -> None:
        """Rewards of a unit, but those that must wait for the whole batch."""
        started, rewards = perf_counter(), list[Rewards | None]()
        try:
            with tracing.span("rollout rewards", self._traces.get(unit.batch, ""), step=unit.step):
                for source, lock in zip(self.rewards, self._source_locks, strict=True):
                    if needs_whole_batch(source):
                        rewards.append(None)
                    elif getattr(source, "concurrent", False):
                        rewards.append(score_completed(source, batch))
                    else:
                        with lock:
                            rewards.append(score_completed(source, batch))
        except BaseException as error:
            if epoch == self._epoch:
                self._fail(error)
            return
        with self._changed:
            if epoch == self._epoch:
                unit.seconds["reward"] = perf_counter() - started
                unit.outcome, unit.progress = Rollouts(batch, tuple(rewards)), None
                self._changed.notify_all()


def _begun(request: RolloutRequest) -> list[CarriedRow]:
    groups = zip(request.uids, request.items, request.seeds, strict=True)
    size = request.sampling.group_size
    return [empty_row(uid, item, seed, index) for uid, item, seed in groups for index in range(size)]


def _unit_to_dict(unit: RolloutUnit) -> dict[str, Any]:
    plain = ("number", "batch", "step", "publication", "first")
    progress = [row.to_dict() for row in unit.progress or ()]
    rows = unit.rows or len(unit.request.items) * unit.request.sampling.group_size
    payload = {name: getattr(unit, name) for name in plain} | {"rows": rows}
    return payload | {"request": request_to_dict(unit.request), "progress": progress}


def _unit_from_dict(payload: Mapping[str, Any]) -> RolloutUnit:
    request = request_from_dict(payload["request"])
    progress = [row_from_dict(row) for row in payload["progress"]] or None
    return RolloutUnit(**{**payload, "request": request, "progress": progress})


def thread_pool(recipe: Recipe, policy: Policy, actor: RolloutActor, rewards: Sequence[RewardSource]) -> RolloutPool:
    """Without actors: `actor`, which has a copy of the policy, generates in a thread of this process."""
    called = ThreadActor(actor)
    return RolloutPool(recipe, policy, rewards, lambda index: called, MemoryRelay(), probed=False)


def actor_pool(
    recipe: Recipe, policy: Policy, rewards: Sequence[RewardSource], *, on: str, folder: Path
) -> RolloutPool:
    """`folder`: of the run, which local actors read weights from and actors of a cluster have to see."""
    plan = recipe.sampler
    # Beside an engine of its own, an actor has the policy for its weights and the check alone.
    devices = recipe.asynchrony.devices or ("cpu" if isinstance(plan, ActorEngines) else str(policy.device),)

    def hire(index: int) -> Actor:
        device = devices[index % len(devices)]
        sampler = plan.for_actor(index) if isinstance(plan, ActorEngines) else plan
        chosen = recipe_to_dict(replace(recipe, sampler=sampler))
        arguments = {"recipe": chosen, "policy": policy.name, "device": device}
        return open_actor(on, TARGET, arguments, folder=folder, gpus=float("cuda" in device))

    return RolloutPool(recipe, policy, rewards, hire, open_relay(on, folder / "weights"), probed=True)
