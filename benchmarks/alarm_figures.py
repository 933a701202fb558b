"""The figures of `alarm_rates.py`: what became of a run, the alarm's rates, and limits fixed on the calibration half.

Covers: collapse, decline and health by gold alone; detections and false alarms with their Wilson intervals, lead in
steps, by set of signals; weights and thresholds by coordinate search. Leaves out: training the runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from assay.statistics.intervals import wilson
from assay_policy_training.plugins.watch.alarm import DEFAULT_LIMITS, AlarmLimits, alarm_numbers, alarms

WINDOW, COLLAPSE, DECLINE = 5, 0.20, 0.12  #: steps in a mean of gold; falls from its best, as shares of it
GAIN = 0.02  #: in mean height
LEAST = 0.5  #: a threshold's least, in weights
MARGIN = 1.1  #: a threshold lies so far above the healthy runs that it must not ring in
WEIGHTS = (0.1, 0.3, 1.0, 3.0)  #: none is 0, so that no set rests on one signal alone
ROUNDS = 4
FIRST_STEPS, WINDOWS = (3, 4, 5), (1, 2, 3)
MAIN_SET = "held-out reward"
HEADER = """\
# Limits of the over-optimisation alarm (`alarm.py`). A score is sum(weight x signal) / threshold, an alarm one above 1.
# Fixed on the {runs} runs of the calibration half of benchmarks/alarm_rates.py.
"""
COMMON = ("reward", "kl", "length", "repetition")
HELD_OUT = ("gap", "fall", "agreement")
#: What a run may have, the most first: the alarm uses the first set that it has.
SETS: dict[str, tuple[str, ...]] = {
    "held-out reward, probes, ensemble": (*HELD_OUT, "probe", "spread", *COMMON),
    "held-out reward, probes": (*HELD_OUT, "probe", *COMMON),
    "held-out reward, ensemble": (*HELD_OUT, "spread", *COMMON),
    "held-out reward": (*HELD_OUT, *COMMON),
    "held-out reward, no reference or agreement": ("gap", "fall", "reward", "length", "repetition"),
    "probes": ("probe", *COMMON),
    "ensemble": ("spread", *COMMON),
    "rollouts only": COMMON,
    "rollouts only, no reference": ("reward", "length", "repetition"),
}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """`state`: collapsed, declined or healthy. `step`: at which the collapse is there; None: there is none."""

    state: str
    step: int | None
    fall: float  #: the largest, as a share of the best mean before it


def outcome(rows: Sequence[Mapping[str, float]]) -> Outcome:
    """Of gold alone: its mean over WINDOW steps against the best such mean so far."""
    gold, best, largest = [row["gold"] for row in rows], 0.0, 0.0
    for end in range(WINDOW, len(gold) + 1):
        mean = fmean(gold[end - WINDOW : end])
        best = max(best, mean)
        fall = 1 - mean / best if best else 0.0
        largest = max(largest, fall)
        if fall > COLLAPSE:
            return Outcome("collapsed", int(rows[end - 1]["step"]), largest)
    return Outcome("declined" if largest > DECLINE else "healthy", None, largest)


def rates(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the shipped limits as they choose a set, and of each set alone."""
    limits = AlarmLimits.load()
    outcomes = [outcome(run["rows"]) for run in runs]
    states = Counter(each.state for each in outcomes)
    figures: dict[str, Any] = {"runs": len(runs), **states, "definitions": {"collapse": COLLAPSE, "decline": DECLINE}}
    if collapsed := [each.step for each in outcomes if each.step is not None]:
        figures["collapse_at_step_median"] = median(collapsed)
    figures["as_shipped"] = _rates(runs, outcomes, limits)
    figures["by_set"] = {part.name: _rates(runs, outcomes, replace(limits, sets=(part,))) for part in limits.sets}
    figures["by_policy"] = {
        policy: _rates(*_where(runs, outcomes, "policy", policy), limits)
        for policy in sorted({run["cell"]["policy"] for run in runs})
    }
    figures["by_reward"] = {
        reward: _rates(*_where(runs, outcomes, "reward", reward), limits)
        for reward in sorted({run["cell"]["reward"] for run in runs})
    }
    figures["overoptimised"] = _overoptimised(runs, outcomes)
    for name, value in figures["as_shipped"].items():
        print(f"{name}: {value}")
    for name, of in figures["by_set"].items():
        print(f"{name}: detected {_text(of['detected'])}, false alarms {_text(of['false_alarms'])}, lead {of['lead']}")
    return figures


def _where(
    runs: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], field: str, value: str
) -> tuple[list[Mapping[str, Any]], list[Outcome]]:
    pairs = [(run, each) for run, each in zip(runs, outcomes, strict=True) if run["cell"][field] == value]
    return [run for run, _ in pairs], [each for _, each in pairs]


def _rates(runs: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], limits: AlarmLimits) -> dict[str, Any]:
    rung = []
    for run in runs:
        numbers = alarms(run["rows"], limits)
        steps = [int(row["step"]) for row, each in zip(run["rows"], numbers, strict=True) if each.get("alarm")]
        has = any("alarm_score" in each for each in numbers)
        rung.append((has, min(steps, default=None)))
    return _summary(outcomes, rung)


def _overoptimised(runs: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The older rule of the watch, which needs the reward trained on to be no lower, on the same runs."""
    steps = [[int(row["step"]) for row in run["rows"] if row.get("overoptimised")] for run in runs]
    return _summary(outcomes, [(True, min(each, default=None)) for each in steps])


def _summary(outcomes: Sequence[Outcome], rung: Sequence[tuple[bool, int | None]]) -> dict[str, Any]:
    """`rung`: whether the run had the signals, and the step of its first alarm."""
    pairs = [(each, step) for each, (has, step) in zip(outcomes, rung, strict=True) if has]
    collapsed = [(each.step, step) for each, step in pairs if each.step is not None]
    leads = [at - step for at, step in collapsed if step is not None and step < at]
    healthy = [step for each, step in pairs if each.state == "healthy"]
    declined = [step for each, step in pairs if each.state == "declined"]
    return {
        "detected": _share(len(leads), len(collapsed)),
        "detected_at_all": _share(sum(step is not None for _, step in collapsed), len(collapsed)),
        "false_alarms": _share(sum(step is not None for step in healthy), len(healthy)),
        "alarms_of_declined": _share(sum(step is not None for step in declined), len(declined)),
        "lead": median(leads) if leads else None,
    }


def _share(count: int, total: int) -> dict[str, float | int | None]:
    if not total:
        return {"count": 0, "of": 0, "share": None}
    interval = wilson(count, total)
    shown = {"low": round(interval.low, 4), "high": round(interval.high, 4)}
    return {"count": count, "of": total, "share": round(count / total, 4), **shown}


def _text(share: Mapping[str, Any]) -> str:
    return f"{share['count']}/{share['of']}" + (f" [{share['low']:.3f}, {share['high']:.3f}]" if share["of"] else "")


def fit(runs: Sequence[Mapping[str, Any]]) -> None:
    """First steps, window, weights and thresholds, into the shipped file, from these runs alone."""
    outcomes, shipped = [outcome(run["rows"]) for run in runs], AlarmLimits.load()
    print(f"{len(runs)} runs: {dict(Counter(each.state for each in outcomes))}")
    tried = []
    for first, window in product(FIRST_STEPS, WINDOWS):
        limits = replace(shipped, first=first, window=window, sets=())
        signals = [[_signals(run["rows"][:end], limits) for end in range(1, len(run["rows"]) + 1)] for run in runs]
        healthy, doomed = _examples(outcomes, signals, SETS[MAIN_SET], limits)
        _, _, detected, height = best_weights(healthy, doomed)
        print(f"first {first}, window {window}: detected {detected:.2f}, height {height:.2f}")
        tried.append((detected, first, window, limits, signals))
    main, _, _, limits, signals = max(tried, key=lambda each: each[:3])  # of equal ones the steadiest
    sets: dict[str, dict[str, Any]] = {}
    for name, members in SETS.items():
        healthy, doomed = _examples(outcomes, signals, members, limits)
        if len(healthy) < 3 or len(doomed) < 3:
            print(f"{name}: {len(healthy)} healthy and {len(doomed)} collapsing runs have it, too few to fix it on")
            continue
        weights, threshold, detected, _ = best_weights(healthy, doomed)
        if not detected:
            print(f"{name}: over any healthy run it detects none of {len(doomed)}; left out")
            continue
        if set(SETS[MAIN_SET]) < set(members) and detected < main:
            print(f"{name}: detects {detected:.2f}, the same without {set(members) - set(SETS[MAIN_SET])} {main:.2f}")
            continue
        used = {member: float(weight) for member, weight in zip(members, weights, strict=True)}
        sets[name] = {"threshold": float(round(threshold, 3)), "weights": used}
        print(f"{name}: {used} over {threshold:.2f}; {len(healthy)} healthy, detected {detected:.2f} of {len(doomed)}")
    body: dict[str, Any] = {"first": limits.first, "window": limits.window, "cap": limits.cap}
    body |= {"floors": dict(limits.floors), "sets": sets}
    text = yaml.safe_dump(body, sort_keys=False, default_flow_style=None, width=200)
    DEFAULT_LIMITS.write_text(HEADER.format(runs=len(runs)) + text)


def _examples(
    outcomes: Sequence[Outcome],
    signals: Sequence[Sequence[Mapping[str, float]]],
    members: Sequence[str],
    limits: AlarmLimits,
) -> tuple[list[Floats], list[Floats]]:
    """[steps, members] of each healthy run, and of each collapsing one before its collapse."""
    healthy: list[Floats] = []
    doomed: list[Floats] = []
    for each, of_run in zip(outcomes, signals, strict=True):
        steps = of_run if each.step is None else of_run[: each.step - 1]
        rows = [[min(max(s[m], 0.0), limits.cap) for m in members] for s in steps if set(members) <= s.keys()]
        if each.state != "declined" and any(set(members) <= s.keys() for s in of_run):
            values = np.asarray(rows or [[0.0] * len(members)], dtype=np.float64)
            (healthy if each.step is None else doomed).append(values)
    return healthy, doomed


def _signals(rows: Sequence[Mapping[str, float]], limits: AlarmLimits) -> dict[str, float]:
    numbers = alarm_numbers(rows, limits)
    return {name.removeprefix("alarm_signal_"): value for name, value in numbers.items()}


def best_weights(healthy: Sequence[Floats], doomed: Sequence[Floats]) -> tuple[list[float], float, float, float]:
    """(weights, threshold, share detected, mean height). Arrays [steps, signals] of the healthy runs, and of the
    collapsing ones before their collapse. The threshold lies MARGIN above the highest score of the healthy runs, but
    for one run in fifty; weights by coordinate search for the share detected, then for how far above the runs are. A
    weight stays 1 unless that gains something (GAIN)."""
    count, spare = healthy[0].shape[1], len(healthy) // 50

    def judged(weights: Sequence[float]) -> tuple[tuple[float, float], float]:
        w = np.asarray(weights)
        peaks = sorted((float((run @ w).max()) for run in healthy), reverse=True)
        threshold = max(MARGIN * peaks[spare], LEAST * float(w.sum()))
        heights = [float((run @ w).max()) / threshold for run in doomed]
        return (fmean(height > 1 for height in heights), fmean(min(h, 2.0) for h in heights)), threshold

    best = [1.0] * count
    for _ in range(ROUNDS):
        before = list(best)
        for place in range(count):
            (detected, height), _ = judged(best)
            tried = [[*best[:place], weight, *best[place + 1 :]] for weight in WEIGHTS]
            better = max(tried, key=lambda weights: judged(weights)[0])
            if judged(better)[0] > (detected, height + GAIN):
                best = better
        if best == before:
            break
    (detected, height), threshold = judged(best)
    return best, threshold, detected, height
