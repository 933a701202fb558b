"""An alarm for over-optimisation: a step's word that the reward is being gamed, from the metrics of the steps so far.

Covers: signals out of the columns of metrics.jsonl, each against the run's own first steps, and one score of those that
a run has. A reading is a pure function of the rows up to its step: the alarm of a run that is over, resumed or still
going is the same. Leaves out: what is done about it (`stop` rules, `assay loop`), where the shipped weights and
thresholds come from (`benchmarks/alarm_rates.py`, docs/policy-training/alarms.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, TypeAlias

import yaml

from assay.errors import BadInputError
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.protocols import StepReport

Row: TypeAlias = Mapping[str, Any]
DEFAULT_LIMITS = Path(__file__).with_suffix(".yaml")
COLUMNS = (
    *("reward_mean", "reward_std", "held_out_reward_mean", "held_out_reward_std", "held_out_agreement"),
    *("ensemble_spread", "reward_uncertainty_mean", "kl_k3", "length_mean", "repeated_trigrams"),
    *("swap_level", "swap_scale", "turns_mean"),
)
#: Deviations from its best by which a held-out reward falls, where the length of episodes is to be a sign.
FALLING = 3.0
REWARD_UNITS = ("reward_mean", "reward_std", "ensemble_spread", "reward_uncertainty_mean")


@dataclass(frozen=True)
class Signal:
    """How a column (or several) turns into a number that grows with over-optimisation.

    `of`: the number of one row, given the means of the run's first steps; None where the row lacks a column.
    `against`: what the last steps are compared with: the first ones, the best earlier ones, the first ones in either
    direction, or, where every run begins at 0, nothing.
    """

    of: Callable[[Row, Mapping[str, float]], float | None]
    against: Literal["first", "best", "both", "zero"] = "first"


def _column(name: str, sign: float = 1.0) -> Callable[[Row, Mapping[str, float]], float | None]:
    return lambda row, _: None if (value := _number(row, name)) is None else sign * value


def _log(*names: str) -> Callable[[Row, Mapping[str, float]], float | None]:
    """Of the first of the columns that the row has."""

    def of(row: Row, _: Mapping[str, float]) -> float | None:
        value = next((value for name in names if (value := _number(row, name)) is not None), None)
        return None if value is None else math.log(max(value, 1e-9))

    return of


def _gain(prefix: str, row: Row, first: Mapping[str, float]) -> float | None:
    """Rise of a mean over the first steps, in deviations of single rollouts then."""
    value, scale = _number(row, f"{prefix}_mean"), first.get(f"{prefix}_std", 0.0)
    return None if value is None or f"{prefix}_mean" not in first else (value - first[f"{prefix}_mean"]) / (scale or 1)


def _gap(row: Row, first: Mapping[str, float]) -> float | None:
    trained, held_out = _gain("reward", row, first), _gain("held_out_reward", row, first)
    return None if trained is None or held_out is None else trained - held_out


SIGNALS: dict[str, Signal] = {
    "reward": Signal(lambda row, first: _gain("reward", row, first)),
    "gap": Signal(_gap),
    "fall": Signal(_column("held_out_reward_mean", -1.0), "best"),
    "agreement": Signal(_column("held_out_agreement", -1.0)),
    "spread": Signal(_log("ensemble_spread", "reward_uncertainty_mean")),
    "kl": Signal(_column("kl_k3"), "zero"),
    "length": Signal(_log("length_mean"), "both"),
    "repetition": Signal(_column("repeated_trigrams")),
    "probe": Signal(_column("probe", -1.0), "best"),
}


@dataclass(frozen=True)
class SignalSet:
    """Signals that are read together. The score is the sum of `weights` x signals over `threshold`: above 1 is an
    alarm."""

    name: str
    weights: Mapping[str, float]
    threshold: float


@dataclass(frozen=True)
class AlarmLimits:
    """`first`: steps that later ones are compared with. `window`: steps a mean is taken over. `cap`: the most that one
    signal counts. `floors`: the least deviation of a signal over the first steps. `sets`: the first whose signals a run
    has is used."""

    first: int
    window: int
    cap: float
    floors: Mapping[str, float]
    sets: tuple[SignalSet, ...]

    @classmethod
    def load(cls, path: Path = DEFAULT_LIMITS) -> "AlarmLimits":
        """Raises BadInputError for a file that is none, or names a signal that does not exist."""
        try:
            raw = yaml.safe_load(path.read_text(encoding="utf-8"))
            sets = tuple(
                SignalSet(str(name), {key: float(w) for key, w in part["weights"].items()}, float(part["threshold"]))
                for name, part in raw["sets"].items()
            )
            floors = {key: float(raw["floors"][key]) for key in SIGNALS}
            limits = cls(int(raw["first"]), int(raw["window"]), float(raw["cap"]), floors, sets)
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise BadInputError(f"cannot be read: {error}", file=path) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            needs = "first, window, cap, floors of every signal, sets of weights and a threshold"
            raise BadInputError(f"needs {needs}: {error!r}", file=path) from None
        unknown = {name for part in sets for name in part.weights} - SIGNALS.keys()
        if unknown:
            raise BadInputError(f"no signal {', '.join(sorted(unknown))}; they are {', '.join(SIGNALS)}", file=path)
        if limits.first < 2 or limits.window < 1 or not all(part.threshold > 0 for part in sets):
            raise BadInputError("needs first of at least 2, window of at least 1, thresholds above 0", file=path)
        return limits


def alarm_numbers(rows: Sequence[Row], limits: AlarmLimits, probe: str = "eval_pass_rate") -> dict[str, float]:
    """The metrics of the last of the `rows` (one a step, in order): `alarm_signal_NAME` of each signal that the run
    has, and, where they make up a set, `alarm_score`, `alarm` (0 or 1) and `alarm_good_step`. `probe`: the column of
    the reward on a fixed set of prompts, which only some steps have.

    There is no score before step `limits.first` + 1, and `alarm` is 0 there. A run that no set is for has no `alarm`.
    Where the reward model is another one after a row with `swap_scale`, rewards are read in units of the first one.
    """
    rows = _comparable(rows)
    signals = _signals(rows, limits, probe)
    numbers = {f"alarm_signal_{name}": value for name, value in signals.items()}
    part = next((part for part in limits.sets if part.weights.keys() <= signals.keys()), None)
    if part is None:
        if len(rows) > limits.first or not any(part.weights.keys() <= _present(rows, limits) for part in limits.sets):
            return numbers
        return {**numbers, "alarm": 0.0, "alarm_good_step": float(rows[-1]["step"])}
    score = _score(part, signals, limits)
    return {**numbers, "alarm_score": score, "alarm": float(score > 1), "alarm_good_step": _good_step(rows, limits)}


def alarms(
    rows: Sequence[Row], limits: AlarmLimits | None = None, probe: str = "eval_pass_rate"
) -> list[dict[str, float]]:
    """`alarm_numbers` of each step of a run, such as the rows of its metrics.jsonl."""
    limits = limits or AlarmLimits.load()
    return [alarm_numbers(rows[: end + 1], limits, probe) for end in range(len(rows))]


def _score(part: SignalSet, signals: Mapping[str, float], limits: AlarmLimits) -> float:
    counted = {name: min(max(signals[name], 0.0), limits.cap) for name in part.weights}
    return sum(weight * counted[name] for name, weight in part.weights.items()) / part.threshold


def _signals(rows: Sequence[Row], limits: AlarmLimits, probe: str) -> dict[str, float]:
    """Deviations, over the first steps, by which the mean of the last `window` steps lies on the wrong side."""
    first = _first_means(rows, limits)
    rows = [{**row, "probe": row.get(probe)} for row in rows]
    signals = {}
    for name, signal in SIGNALS.items():
        values = [value for row in rows if (value := signal.of(row, first)) is not None]
        start, width = (2, 1) if name == "probe" else (limits.first, limits.window)  # probes are rare, of one set
        if len(values) <= start:
            continue
        width = min(width, len(values) - start)
        last = fmean(values[-width:])
        if signal.against == "zero":
            signals[name] = last / limits.floors[name]
            continue
        if signal.against == "best":
            usual = min(fmean(values[end - width : end]) for end in range(width, len(values) - width + 1))
        else:
            usual = fmean(values[:start])
        drift = abs(last - usual) if signal.against == "both" else last - usual
        signals[name] = drift / max(stdev(values[:start]), limits.floors[name])
    if "length" in signals and "turns_mean" in rows[-1] and signals.get("fall", FALLING) < FALLING:
        # How long episodes are is their task's matter: while the held-out reward does not fall, it is no sign.
        signals["length"] = 0.0
    return signals


def _comparable(rows: Sequence[Row]) -> Sequence[Row]:
    """Rewards in units of the run's first reward model. The model of the rows behind one with `swap_level` and
    `swap_scale` gives level + scale x the reward of the model before."""
    level, scale, comparable = 0.0, 1.0, []
    for row in rows:
        units = {name: value / scale for name in REWARD_UNITS if (value := _number(row, name)) is not None}
        if "reward_mean" in units:
            units["reward_mean"] -= level / scale
        comparable.append({**row, **units})
        if (factor := _number(row, "swap_scale")) is not None:
            level, scale = float(row["swap_level"]) + factor * level, factor * scale
    return comparable


def _first_means(rows: Sequence[Row], limits: AlarmLimits) -> dict[str, float]:
    return {name: fmean(values) for name in COLUMNS if (values := _values(rows[: limits.first], name))}


def _present(rows: Sequence[Row], limits: AlarmLimits) -> set[str]:
    """The signals whose columns some row has."""
    first = _first_means(rows, limits)
    return {name for name, signal in SIGNALS.items() if any(signal.of(row, first) is not None for row in rows)}


def _good_step(rows: Sequence[Row], limits: AlarmLimits) -> float:
    """The last step of the best window of the held-out reward; without one, of the first steps that all else is
    compared with or the last `window` before this one, whichever is later."""
    held_out = [(value, row) for row in rows if (value := _number(row, "held_out_reward_mean")) is not None]
    if len(held_out) <= limits.window:
        return float(rows[max(limits.first, len(rows) - limits.window) - 1]["step"])
    ends = range(limits.window, len(held_out) + 1)
    best = max(ends, key=lambda end: (fmean(value for value, _ in held_out[end - limits.window : end]), end))
    return float(held_out[best - 1][1]["step"])


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [value for row in rows if (value := _number(row, name)) is not None]


def _number(row: Row, name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


class OverOptimisationAlarm(StatefulSettings, section="metrics"):
    """S16: `alarm` (0 or 1), `alarm_score`, `alarm_signal_NAME`, `alarm_good_step` of each step (`alarm_numbers`).
    `limits`: a YAML file as the shipped `alarm.yaml`; default: that one. `probe`: the column of the reward on a fixed
    set of prompts, such as `--eval-every` gives."""

    limits: str | None = None
    probe: str = "eval_pass_rate"
    rows: list[dict[str, float]] = field(init=False, default_factory=list)
    reads_metrics = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._limits = AlarmLimits.load(Path(self.limits) if self.limits else DEFAULT_LIMITS)

    @property
    def reads_kl(self) -> bool:
        return any("kl" in part.weights for part in self._limits.sets)

    def measure(self, report: StepReport) -> dict[str, float]:
        """Of the step's metrics, so it is measured after all other plug-ins."""
        names = [name for name in (*COLUMNS, self.probe) if name in report.metrics]
        self.rows.append({"step": report.step, **{name: float(report.metrics[name]) for name in names}})
        return alarm_numbers(self.rows, self._limits, self.probe)
