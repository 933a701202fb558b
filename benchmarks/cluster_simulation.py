"""Simulated: rollouts, rewards, updates and weights of policy training on many engines.

A discrete-event model. Which engine generates what, with which weights, and what a step trains on is decided by the
product's own `RolloutBuffer`; times are the model's: an engine decodes the rows of a unit together, a token takes them
`token_s` (memory-bound decoding: no more for many rows than for few, up to its capacity), the trainer takes `update_s`
a step, rewards `score_s` after a unit, new weights `relay_s`. Response lengths are log-normal, cut at the limit.

First it is compared with published steps of verl (fully asynchronous trainer, Qwen2.5-Math-7B, H20, read in its
documentation), with nothing fitted to the rows compared: seconds a token from the synchronous row of 128 GPUs
(generation 177.85 s for responses that reach 28,672 tokens), updates from the synchronous rows of as many GPUs as the
trainer has, weights from its own table of synchronisation. verl's trainer takes parts of a step in the order in which
groups are complete; `streamed` models that, since it is not ours. Mean lengths it does not give: three are simulated.
Then with our own steps of `async_rl.py` (its stored result: actors that sleep, on one machine), for updates of 0 and
0.2 s, since it does not store them.

    python benchmarks/cluster_simulation.py --quick
    python benchmarks/cluster_simulation.py --engines 8 1000
"""

from __future__ import annotations

import heapq
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from assay_policy_training.rollouts.buffer import RolloutBuffer, RolloutUnit
from measure import BASELINES, Report, arguments

MEASURES = ("policy_training/assay_policy_training/rollouts/buffer.py",)

WITHIN = 0.15  #: of the published figure

#: verl, docs/advance/fully_async.md: seconds of a step, its generation and its update, by GPUs; colocated, synchronous.
VERL_SYNC = {32: (790.10, 357.41, 313.81), 64: (365.28, 150.72, 133.41), 128: (356.30, 177.85, 113.81)}
VERL_WEIGHTS_S = 5.75  #: 7B, its own table: 5.5 to 6.0 by NCCL
VERL_GROUPS, VERL_ROWS, VERL_LIMIT, VERL_PARTS = 512, 16, 28_672, 4


@dataclass(frozen=True)
class Cluster:
    """`groups`: a step's, of `rows` responses each; a unit of work is `unit_groups` of them. `mean`, `sigma`: of the
    log-normal length, in tokens. Seconds: of a token, an update, the rewards of a unit, and loading weights."""

    engines: int
    groups: int
    rows: int = 16
    unit_groups: int = 8
    mean: float = 6000.0
    sigma: float = 0.9
    limit: int = VERL_LIMIT
    token_s: float = 177.85 / VERL_LIMIT
    update_s: float = 60.0
    score_s: float = 1.0
    relay_s: float = VERL_WEIGHTS_S

    def lengths(self, number: int, seed: int) -> np.ndarray[Any, Any]:
        """Tokens of the responses of a unit."""
        rng = np.random.default_rng((seed, number))
        drawn = rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, self.unit_groups * self.rows)
        lengths: np.ndarray[Any, Any] = np.minimum(np.ceil(drawn), self.limit).astype(int)
        return lengths


@dataclass(frozen=True)
class Mode:
    """How rollouts and training overlap: the settings of a recipe's `asynchrony`."""

    staleness: int = 0
    fixed: bool = False
    window: int = 0
    partial: bool = False


@dataclass(frozen=True)
class Outcome:
    """Of the steps after the first half: seconds a step, the rows' age in steps, and how busy engines were."""

    step_s: float
    mean_age: float
    most_age: int
    busy: float


def simulate(cluster: Cluster, mode: Mode, *, steps: int, seed: int = 0) -> Outcome:
    """Train `steps` steps. Time is that of the model."""
    buffer = RolloutBuffer(
        staleness=mode.staleness,
        fixed=mode.fixed,
        partial=mode.partial,
        capacity=cluster.unit_groups * cluster.rows,
    )
    events: list[tuple[float, int, str, Any]] = []
    order = count()
    loaded: dict[str, int | None] = {f"engine-{n}": None for n in range(cluster.engines)}
    idle = dict.fromkeys(loaded)
    asking = list(idle)  # idle, and not told since that there is nothing
    batches: list[int] = []
    ends, ages, generated_s = [], [], 0.0
    training = False
    now, trained, units = 0.0, 0, cluster.groups // cluster.unit_groups

    def submit() -> None:
        while len(batches) < steps + mode.staleness and buffer.admits(len(batches)):
            first = len(batches) * units
            requests = [(first + n, cluster.unit_groups * cluster.rows) for n in range(units)]
            batches.append(buffer.submit(len(batches), requests))

    def begin(actor: str, taken: list[RolloutUnit]) -> None:
        lengths = [_left(cluster, unit, seed) for unit in taken]
        longest = max(int(each.max()) for each in lengths)
        tokens = min(longest, mode.window) if mode.window else longest
        load = cluster.relay_s if loaded[actor] != taken[0].publication else 0.0
        loaded[actor] = taken[0].publication
        heapq.heappush(events, (now + load + tokens * cluster.token_s, next(order), "call", (actor, taken, tokens)))

    submit()
    while trained < steps:
        for actor in asking:
            if taken := buffer.take(actor):
                del idle[actor]
                begin(actor, taken)
        asking = []
        if not training and trained < len(batches) and buffer.ready(batches[trained]):
            done = buffer.consume(batches[trained])
            ages.append([trained - (unit.first or 0) for unit in done])
            training = True
            heapq.heappush(events, (now + cluster.update_s, next(order), "updated", None))
            continue
        now, _, kind, what = heapq.heappop(events)
        if kind == "call":
            actor, taken, tokens = what
            generated_s += tokens * cluster.token_s
            for unit in taken:
                left = _left(cluster, unit, seed) - tokens
                alive = left[left > 0]
                buffer.returned(unit, len(alive), alive)
                if unit.generated:
                    heapq.heappush(events, (now + cluster.score_s, next(order), "scored", unit))
            idle[actor] = None
            asking = [actor]
        elif kind == "scored":
            what.outcome = True
        else:
            training = False
            trained += 1
            ends.append(now)
            buffer.publish(trained)
            submit()
            asking = list(idle)
    half = steps // 2
    late = [age for step in ages[half:] for age in step]
    step_s = (ends[-1] - ends[half - 1]) / (steps - half)
    return Outcome(step_s, float(np.mean(late)), max(late), generated_s / (now * cluster.engines))


def _left(cluster: Cluster, unit: RolloutUnit, seed: int) -> np.ndarray[Any, Any]:
    return cluster.lengths(unit.number, seed) if unit.progress is None else np.asarray(unit.progress)


def streamed(cluster: Cluster, *, ahead: float, steps: int = 12, seed: int = 0) -> float:
    """Seconds a step of verl's stream: all engines together have room for a step's rows, a group that is complete
    makes room for the next, and the trainer takes a quarter of a step in the order in which groups are complete.
    `ahead`: its staleness_threshold: groups beyond a step's that may be begun before the next weights; rows under way
    go on under them. Without, a step's groups are begun at once, when the weights are there."""
    quarter, end, ends = cluster.groups // VERL_PARTS, 0.0, []
    longest = _group_seconds(cluster, seed)
    complete: list[float] = []  # times, of groups that nobody has trained on
    running: list[float] = []
    for _ in range(steps):
        began = end
        if ahead == 0:
            complete = sorted(began + next(longest) for _ in range(cluster.groups))
        for part in range(VERL_PARTS):
            while ahead and len(complete) < quarter:
                allowed = int((1 + ahead) * cluster.groups) - part * quarter
                while len(running) < min(cluster.groups, allowed):
                    heapq.heappush(running, max(began, running[0] if running else began) + next(longest))
                complete.append(heapq.heappop(running))
                heapq.heappush(running, complete[-1] + next(longest))
            taken, complete = complete[:quarter], complete[quarter:]
            end = max(end, taken[-1]) + cluster.update_s / VERL_PARTS
            while ahead and running and running[0] <= end:  # generated during the update
                complete.append(heapq.heappop(running))
                if len(complete) + len(running) < (1 + ahead) * cluster.groups:
                    heapq.heappush(running, complete[-1] + next(longest))
        end += cluster.relay_s
        ends.append(end)
    return (ends[-1] - ends[steps // 2 - 1]) / (steps - steps // 2)


def _group_seconds(cluster: Cluster, seed: int) -> Iterator[float]:
    """Of the longest response of each group."""
    for number in count():
        for group in cluster.lengths(number, seed).reshape(-1, cluster.rows):
            yield float(group.max()) * cluster.token_s


def published(seed: int = 0) -> list[tuple[str, float, list[float]]]:
    """(row, published seconds a step, simulated ones for several lengths that the documentation does not give)."""
    rows: list[tuple[str, float, list[float]]] = []
    for name, gpus, ahead, seconds in (
        ("64 + 64 GPUs, staleness 0", 64, 0.0, 231.34),
        ("64 + 64 GPUs, staleness 0.5", 64, 0.5, 150.63),
        ("32 + 32 GPUs, staleness 0.5", 32, 0.5, 189.26),
    ):
        cluster = Cluster(engines=gpus, groups=VERL_GROUPS, update_s=VERL_SYNC[gpus][2])
        means = (3000.0, 6000.0, 10_000.0)
        rows.append((name, seconds, [streamed(replace(cluster, mean=m), ahead=ahead, seed=seed) for m in means]))
    sync, generation, update = VERL_SYNC[128]
    old = sync - generation - update
    cluster = Cluster(engines=128, groups=VERL_GROUPS, unit_groups=4, update_s=update + old, relay_s=0, score_s=0)
    whole = [simulate(replace(cluster, mean=m), Mode(), steps=6).step_s for m in (3000.0, 6000.0, 10_000.0)]
    rows.insert(0, ("128 GPUs, synchronous (its own parts)", sync, whole))
    return rows


def own(seeds: int = 3) -> list[tuple[str, float, list[float]]]:
    """(arm, measured steps a second, simulated ones) of `async_rl.py`."""
    stored = json.loads((BASELINES / "async_rl.json").read_text())["figures"]
    rows: list[tuple[str, float, list[float]]] = []
    for name, engines, mode in (
        ("lag 1, one engine", 1, Mode(1, fixed=True)),
        ("lag 1, 4 actors", 4, Mode(1, fixed=True)),
        ("staleness 4, 4 actors", 4, Mode(4)),
    ):
        cluster = Cluster(
            *(engines, 8, 1, 1),
            mean=1000 * stored["median_group_s"] * math.exp(stored["sigma"] ** 2 / 2),
            sigma=stored["sigma"],
            limit=round(5000 * stored["median_group_s"]),
            token_s=0.001,
            score_s=0.0,
            relay_s=0.0,
        )
        simulated = []
        for update_s in (0.0, 0.2):
            runs = [simulate(replace(cluster, update_s=update_s), mode, steps=60, seed=n).step_s for n in range(seeds)]
            simulated.append(1 / statistics.mean(runs))
        rows.append((name, statistics.median(stored[name]["steps_a_second"]), simulated))
    return rows


MODES = {
    "synchronous": Mode(),
    "lag 1": Mode(1, fixed=True),
    "staleness 1": Mode(1),
    "staleness 4": Mode(4),
    "staleness 4, repacked": Mode(4, window=4096),
    "staleness 4, partial": Mode(4, window=4096, partial=True),
}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, nargs="+", default=[8, 32, 128, 512, 1000])
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    report = Report("cluster_simulation", measures=MEASURES)
    print("simulated, but for what is called published or measured; verl's rows with three mean lengths of responses")
    compared = [(f"verl, {name}", "published", "s a step", known, found) for name, known, found in published()]
    compared += [(f"async_rl.py, {name}", "measured", "steps a s", known, found) for name, known, found in own()]
    for name, source, unit, known, simulated in compared:
        error = max(abs(each / known - 1) for each in simulated)
        verdict = "within 15 %" if error <= WITHIN else f"NOT within 15 %, by up to {error:.0%}"
        values = ", ".join(f"{each:.3g}" for each in simulated)
        print(f"{name}: {source} {known:.3g} {unit}, simulated {values}: {verdict}")
        report.figures[name] = {source: known, "simulated": [round(each, 3) for each in simulated], "unit": unit}
    for engines in options.engines[:2] if options.quick else options.engines:
        cluster = Cluster(engines=engines, groups=engines * 8)
        base = simulate(cluster, MODES["synchronous"], steps=options.steps)
        for name, mode in MODES.items():
            started = time.perf_counter()
            outcome = simulate(cluster, mode, steps=options.steps)
            speed = base.step_s / outcome.step_s
            hours = (engines + engines) * outcome.step_s / 3600 / (cluster.groups * cluster.rows) * 1e6
            print(
                f"{engines:5d} engines, {name:22s} {outcome.step_s:6.0f} s a step, {speed:.2f} times synchronous, "
                f"age {outcome.mean_age:.2f} (at most {outcome.most_age}), engines busy {outcome.busy:.0%}, "
                f"{hours:,.0f} GPU hours a million rollouts"
            )
            report.figures[f"{engines} {name}"] = {
                "step_s": round(outcome.step_s, 1),
                "mean_age": round(outcome.mean_age, 3),
                "most_age": outcome.most_age,
                "busy": round(outcome.busy, 3),
                "gpu_hours_a_million_rollouts": round(hours, 1),
            }
            report.ratios[f"simulated: {name} / synchronous, {engines} engines"] = speed
            print(f"  ({time.perf_counter() - started:.1f} s)", file=sys.stderr)
    report.finish(options)


if __name__ == "__main__":
    main()
