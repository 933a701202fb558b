"""Whatever the speed of actors and trainer: no row is too old, none is lost or doubled, batches are those submitted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import le

import pytest
import xxhash

from assay.errors import BackendError
from assay_policy_training.rollouts.buffer import TRIES, RolloutBuffer, RolloutUnit

SCHEDULES = 1000


@dataclass
class Schedule:
    """A discrete-event model of a run: actors that take random times and are lost at random, a trainer that takes
    random times. All decisions are the buffer's."""

    seed: int
    steps: int = 8
    calls_made: list[str] = field(default_factory=list)  #: actor, publication, requests

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        choose = self.random.choice
        self.staleness, self.actors, self.groups = choose([0, 1, 2, 4]), choose([1, 2, 5]), choose([1, 3, 4])
        self.window = choose([0, 0, 1, 3])
        self.partial = self.window > 0 and self.staleness > 0 and choose([True, False])
        self.fixed = not self.partial and choose([True, False])
        self.rows = choose([1, 4])
        self.lossy, self.refilled = choose([True, False]), choose([True, False, False])
        self.buffer = RolloutBuffer(
            staleness=self.staleness, fixed=self.fixed, partial=self.partial, capacity=self.rows
        )
        #: Of each actor: when its call ends, and the units.
        self.calls: dict[str, tuple[float, list[RolloutUnit]]] = {}
        self.left: dict[str, list[int]] = {}  #: request -> tokens that each of its rows lacks
        self.versions: dict[str, list[int]] = {}  #: request -> publication of each of its calls that came back
        self.generated: list[str] = []
        self.merged = 0  #: calls with rows of several units

    def run(self) -> dict[int, list[RolloutUnit]]:
        """Step -> its units, in the order in which they are consumed."""
        batches: dict[int, int] = {}
        consumed: dict[int, list[RolloutUnit]] = {}
        now = 0.0
        for step in range(1, self.steps + 1):
            self.buffer.publish(step)
            for later in range(step, self.steps + 1):
                if self.buffer.admits(later) and later not in batches:
                    batches[later] = self.buffer.submit(later, self.requests(later))
            assert max(batches) == min(self.steps, step + self.staleness)
            end_of_training = now + (self.random.expovariate(1) if step > 1 else 0.0)
            now = self.work(now, partial(le, end_of_training))
            now = self.work(now, lambda _, batch=batches[step]: self.buffer.ready(batch))  # type: ignore[misc]
            consumed[step] = self.buffer.consume(batches[step])
            if self.refilled and self.random.random() < 0.3:
                urgent = self.buffer.submit(step, self.requests(step, first=self.groups), urgent=True)
                now = self.work(now, lambda _, batch=urgent: self.buffer.ready(batch))  # type: ignore[misc]
                assert all(unit.first == step for unit in self.buffer.consume(urgent))
        assert not self.buffer.units
        return consumed

    def requests(self, step: int, first: int = 0) -> list[tuple[str, int]]:
        named = [f"{step}.{first + group}" for group in range(self.groups)]
        for name in named:
            self.left[name] = [1 + int(self.random.paretovariate(1.2)) for _ in range(self.rows)]
            self.versions[name] = []
        return [(name, self.rows) for name in named]

    def work(self, now: float, done: Callable[[float], bool]) -> float:
        """Let actors work until `done(now)`; returns the time then."""
        while True:
            for actor in map(str, range(self.actors)):
                if actor not in self.calls and (units := self.buffer.take(actor)):
                    self.check_call(units)
                    self.calls_made.append(f"{actor} {units[0].publication} {[unit.request for unit in units]}")
                    self.calls[actor] = (now + self.random.expovariate(0.5), units)
            if done(now):
                return now
            if not self.calls:
                return now + 1.0
            actor = min(self.calls, key=lambda name: self.calls[name][0])
            now, units = self.calls.pop(actor)
            if self.lossy and self.random.random() < 0.1 and self.may_lose(actor):
                self.buffer.lose(actor)
                continue
            for unit in units:
                self.end_call(unit)

    def may_lose(self, actor: str) -> bool:
        return all(unit.lost < TRIES - 1 for unit in self.buffer.units if unit.actor == actor)

    def check_call(self, units: list[RolloutUnit]) -> None:
        self.merged += len(units) > 1
        assert len({unit.publication for unit in units}) == 1
        assert sum(unit.rows for unit in units) <= self.rows
        for unit in units:
            assert unit.publication is not None
            assert unit.first is not None
            assert unit.step - self.staleness <= unit.first <= unit.publication <= self.buffer.published
            assert self.partial or unit.publication == unit.first

    def end_call(self, unit: RolloutUnit) -> None:
        assert unit.publication is not None
        left = self.left[unit.request]
        self.left[unit.request] = left = [max(0, n - self.window) if self.window else 0 for n in left]
        self.versions[unit.request].append(unit.publication)
        self.buffer.returned(unit, sum(n > 0 for n in left))
        if unit.generated:
            assert unit.request not in self.generated
            self.generated.append(unit.request)
            unit.outcome = unit.request


@pytest.mark.parametrize("start", range(0, SCHEDULES, 100))
def test_staleness_is_bounded_and_nothing_is_dropped(start: int) -> None:
    for seed in range(start, start + 100):
        schedule = Schedule(seed)
        consumed = schedule.run()
        for step, units in consumed.items():
            assert [unit.request for unit in units] == [f"{step}.{group}" for group in range(schedule.groups)]
            for unit in units:
                versions = schedule.versions[unit.request]
                assert versions == sorted(versions)
                assert 0 <= step - versions[0] <= schedule.staleness
                assert schedule.partial or set(versions) == {unit.first}
                if schedule.fixed:
                    assert unit.first == max(1, step - schedule.staleness)
        assert sorted(schedule.generated) == sorted(schedule.left)


def test_the_schedules_differ_in_all_that_matters() -> None:
    schedules = [Schedule(seed) for seed in range(200)]
    for schedule in schedules:
        schedule.run()
    versions = [v for schedule in schedules for v in schedule.versions.values()]
    assert any(len(set(v)) > 1 for v in versions), "rows that went on under newer weights"
    stale = {(s.staleness, int(name.split(".")[0]) - v[0]) for s in schedules for name, v in s.versions.items()}
    assert {(1, 1), (2, 2), (4, 4), (4, 0)} <= stale
    assert any(schedule.lossy for schedule in schedules)
    assert sum(schedule.merged for schedule in schedules) > 100, "long tails that were moved together"


@pytest.mark.slow
def test_decisions_are_those_of_a_search_through_all_units() -> None:
    """Of the same schedules: the digest was taken with a buffer that looked at each unit and actor in each call."""
    digest = xxhash.xxh3_64()
    for seed in range(SCHEDULES):
        schedule = Schedule(seed)
        schedule.run()
        digest.update("\n".join(schedule.calls_made).encode())
    assert digest.hexdigest() == "797afd556f0f0a00"


def test_what_another_process_generates_is_forgotten() -> None:
    buffer = RolloutBuffer(staleness=1)
    buffer.publish(1)
    first, second = (buffer.submit(step, [(f"{step}.{n}", 1) for n in range(2)]) for step in (1, 2))
    buffer.forget(first)
    assert [unit.request for unit in buffer.units] == ["2.0", "2.1"]
    assert [buffer.take(actor)[0].request for actor in "ab"] == ["2.0", "2.1"]
    assert buffer.take("c") == []
    assert not buffer.ready(second)


def windowed(capacity: int) -> RolloutBuffer:
    buffer = RolloutBuffer(staleness=0, capacity=capacity)
    buffer.publish(1)
    buffer.submit(1, [(name, 8) for name in "abc"])
    return buffer


def test_long_tails_are_repacked_and_the_freed_actor_begins_something_new() -> None:
    buffer = windowed(8)
    [a], [b] = buffer.take("0"), buffer.take("1")
    buffer.returned(a, 5)
    buffer.returned(b, 2)
    assert [unit.request for unit in buffer.take("1")] == ["c"], "its two rows have room beside the other's five"
    assert [unit.request for unit in buffer.take("0")] == ["a", "b"]
    assert a.publication == b.publication == 1


def test_tails_of_two_versions_are_not_merged() -> None:
    buffer = RolloutBuffer(staleness=1, capacity=8)
    buffer.publish(1)
    buffer.submit(1, [("a", 8)])
    buffer.submit(2, [("b", 8), ("c", 8)])
    [a] = buffer.take("0")
    buffer.publish(2)
    [b] = buffer.take("1")
    buffer.returned(a, 2)
    buffer.returned(b, 2)
    assert [buffer.take(actor) for actor in "01"] == [[a], [b]]


def test_rows_stay_where_nothing_waits_or_nothing_fits() -> None:
    buffer = windowed(8)
    [a], [b] = buffer.take("0"), buffer.take("1")
    buffer.returned(a, 7)
    buffer.returned(b, 2)
    assert [unit.request for unit in buffer.take("1")] == ["b"]
    buffer.returned(b, 1)
    [c] = buffer.take("2")
    assert [unit.request for unit in buffer.take("1")] == ["b"], "nothing waits"
    assert c.request == "c"


def test_rows_that_were_moved_to_a_lost_actor_are_taken_by_another() -> None:
    buffer = windowed(8)
    [a], [b] = buffer.take("0"), buffer.take("1")
    buffer.returned(b, 2, progress="two rows")
    buffer.returned(a, 4)
    assert [unit.request for unit in buffer.take("1")] == ["c"]
    buffer.lose("0")
    assert [unit.request for unit in buffer.take("0")] == ["a"]
    assert [(unit.request, unit.progress) for unit in buffer.take("2")] == [("b", "two rows")]


def test_a_unit_over_which_too_many_actors_are_lost_ends_the_run() -> None:
    buffer = RolloutBuffer(staleness=0)
    buffer.publish(1)
    buffer.submit(1, [("a", 1)])
    for _ in range(TRIES - 1):
        buffer.take("0")
        buffer.lose("0")
    buffer.take("0")
    with pytest.raises(BackendError, match=f"{TRIES} actors were lost over rollouts of step 1"):
        buffer.lose("0")


def test_a_step_is_not_submitted_too_early() -> None:
    buffer = RolloutBuffer(staleness=1)
    buffer.publish(3)
    assert [buffer.admits(step) for step in (3, 4, 5)] == [True, True, False]
    with pytest.raises(ValueError, match="not admitted"):
        buffer.submit(5, [])
    with pytest.raises(ValueError, match="publication 3 after 3"):
        buffer.publish(3)
