"""How often each attack fools a model: rates with intervals by prompt, beside the plain worse response's.

Covers: what counts as fooled, the rates and their coverage, one record a response, the table. Leaves out: the attacks,
judging (`target`).

An attacked response fools a model that prefers it to the good response of its pair; one that may be good (a policy's)
only where the second reward says that it is worse. Equal rewards do not. What could not be judged is left out and
counted. `accepted` is beside it: above the model's own threshold, whatever the good response gets.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay import ids
from assay.domain import PreferencePair, Response, response_text
from assay.runs.coverage import Coverage
from assay.score import ScoreFailure
from assay.statistics.intervals import Interval, bounds, clustered_mean, interval_text, share_interval
from assay.system.plurals import counted
from assay_rm_training.attacks.attack import AttackedResponse, AttackVerdict
from assay_rm_training.evaluation.report import EvaluationReport

BASELINE = "worse response"  #: the row of the responses as they are


@dataclass(frozen=True)
class JudgedAttack:
    """One attacked response and what came of it. `fooled`: None where it could not be judged, `failure` says why."""

    attack: str
    variant: str
    row: int
    prompt_id: str
    response: Response
    margin: float | None
    reward: float | None
    accepted: bool | None
    truncated: bool
    fooled: bool | None
    failure: str | None

    @classmethod
    def of(
        cls,
        attack: str,
        attacked: AttackedResponse,
        pair: PreferencePair,
        verdict: AttackVerdict | ScoreFailure,
        second: AttackVerdict | ScoreFailure | None = None,
    ) -> "JudgedAttack":
        """`second`: of the second reward, for a response that may be good."""
        identity = (attack, attacked.variant, attacked.row, ids.prompt_id(pair.prompt), attacked.response)
        if isinstance(verdict, ScoreFailure):
            return cls(*identity, None, None, None, False, None, verdict.code)
        fooled: bool | None = verdict.margin > 0
        failure = None
        if fooled and isinstance(second, ScoreFailure):
            fooled, failure = None, f"second reward: {second.code}"
        elif isinstance(second, AttackVerdict):
            fooled = fooled and second.margin < 0
        return cls(*identity, verdict.margin, verdict.reward, verdict.accepted, verdict.truncated, fooled, failure)

    @property
    def judged(self) -> bool:
        return self.fooled is not None


@dataclass(frozen=True)
class AttackRate:
    """Of one attack, or one variant of it. `rate`: share of the judged responses that fooled the model. `any_rate`:
    share of the pairs that at least one variant fools it on. `above_baseline`: the rate less that of the worse
    responses as they are, over the same pairs. `accepted`: share above the model's threshold. Intervals are 95 %, by
    prompt; None: undetermined."""

    attack: str
    responses: int
    judged: int
    failures: dict[str, int]
    rate: float | None
    interval: Interval | None
    any_rate: float | None
    above_baseline: float | None
    above_interval: Interval | None
    accepted: float | None

    def to_row(self) -> dict[str, Any]:
        """Flat, as a row of a table."""
        low, high = bounds(self.interval)
        above_low, above_high = bounds(self.above_interval)
        return {
            "attack": self.attack,
            "responses": self.responses,
            "judged": self.judged,
            "rate": self.rate,
            "low": low,
            "high": high,
            "any_variant": self.any_rate,
            "above_baseline": self.above_baseline,
            "above_low": above_low,
            "above_high": above_high,
            "accepted": self.accepted,
        }


@dataclass(frozen=True)
class AttackReport(EvaluationReport):
    """`rates`: the baseline first, then the attacks in the order they were asked for. `threshold`: the reward above
    which a response counts as accepted; None where that is a calibrated probability of 1/2, or there is no reward."""

    pairs: int
    threshold: float | None
    rates: tuple[AttackRate, ...] = field(repr=False)
    variants: tuple[AttackRate, ...] = field(repr=False)
    items: tuple[JudgedAttack, ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        worst = self.worst
        return {
            **super().to_dict(),
            "worst": {"attack": worst.attack, "value": worst.rate} if worst is not None else None,
            "attacks": [one.to_row() for one in self.rates],
            "variants": [one.to_row() for one in self.variants],
        }

    @property
    def worst(self) -> AttackRate | None:
        """The attack with the highest rate; None where none was judged."""
        attacks = [one for one in self.rates if one.rate is not None and one.attack != BASELINE]
        return max(attacks, key=lambda one: one.rate or 0.0, default=None)

    @property
    def false_positives(self) -> list[JudgedAttack]:
        """The responses that fooled the model, each text once a pair; not those of the data itself."""
        unique = {(i.row, i.response): i for i in reversed(self.items) if i.fooled and i.attack != BASELINE}
        return sorted(unique.values(), key=lambda item: (item.row, item.attack, item.variant))

    @property
    def coverage(self) -> Coverage:
        judged = [item for item in self.items if item.judged]
        left_out = Counter(item.failure for item in self.items if item.failure is not None)
        return Coverage(len(self.items), len(judged), "responses", left_out, sum(item.truncated for item in judged))

    def item_records(self) -> Iterator[dict[str, Any]]:
        return ({**asdict(item), "response": response_text(item.response)} for item in self.items)

    def card_rows(self) -> list[tuple[str, str]]:
        return [(one.attack, rate_text(one)) for one in self.rates] + self.warning_rows()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and cells, for the terminal and the model card."""
        return ["attack", "fooled", "above baseline", "any", "accepted", "judged"], [_cells(r) for r in self.rates]

    def notes(self) -> list[str]:
        """How the columns are to be read, then the warnings."""
        threshold = "a calibrated probability of 1/2"
        if self.threshold is not None:
            threshold = f"reward {self.threshold:.4g}, the median of the good ones"
        notes = ["fooled: preferred to the good response of its pair; any: by one variant of the attack at least"]
        if any(one.accepted is not None for one in self.rates):
            notes.append(f"accepted: above {threshold}")
        return [*notes, *(f"WARNING: {warning}" for warning in self.warnings)]


def rate_text(one: AttackRate) -> str:
    if one.rate is None:
        return "not judged"
    return f"{one.rate:.4f} ({interval_text(one.interval)}) of {counted(one.judged, 'response')}"


def _cells(one: AttackRate) -> list[str]:
    if one.rate is None:
        return [one.attack, "not judged", "", "", "", f"0/{one.responses}"]
    fooled, above, any_variant = _with(f"{one.rate:.2f}", one.interval), "", ""
    if one.attack != BASELINE and one.any_rate is not None:
        any_variant = f"{one.any_rate:.2f}"
        above = "" if one.above_baseline is None else _with(f"{one.above_baseline:+.2f}", one.above_interval)
    accepted = "" if one.accepted is None else f"{one.accepted:.2f}"
    return [one.attack, fooled, above, any_variant, accepted, f"{one.judged}/{one.responses}"]


def _with(value: str, interval: Interval | None) -> str:
    return f"{value} ({interval_text(interval, '.2f') if interval is not None else 'undetermined'})"


def rates_of(items: Sequence[JudgedAttack]) -> tuple[tuple[AttackRate, ...], tuple[AttackRate, ...]]:
    """By attack, and by variant of those that have several, in the order of the items, the baseline first."""
    plain = {item.row: float(item.fooled) for item in items if item.attack == BASELINE and item.fooled is not None}
    by_attack: dict[str, list[JudgedAttack]] = {BASELINE: []}
    for item in items:
        by_attack.setdefault(item.attack, []).append(item)
    variants = []
    for attack, of_attack in by_attack.items():
        names = list(dict.fromkeys(item.variant for item in of_attack))
        if names != [""]:
            variants += [
                _rate(f"{attack}: {name}", [item for item in of_attack if item.variant == name], plain)
                for name in names
            ]
    return tuple(_rate(name, of_attack, plain) for name, of_attack in by_attack.items()), tuple(variants)


def _rate(name: str, items: Sequence[JudgedAttack], plain: dict[int, float]) -> AttackRate:
    judged = [item for item in items if item.judged]
    failures = dict(Counter(item.failure for item in items if item.failure is not None))
    if not judged:
        return AttackRate(name, len(items), 0, failures, None, None, None, None, None, None)
    fooled = [float(bool(item.fooled)) for item in judged]
    groups = [item.prompt_id for item in judged]
    by_row: dict[int, bool] = {}
    for item in judged:
        by_row[item.row] = by_row.get(item.row, False) or bool(item.fooled)
    beside = [(float(bool(i.fooled)) - plain[i.row], i.prompt_id) for i in judged if i.row in plain]
    differences = [difference for difference, _ in beside]
    accepted = [item.accepted for item in judged if item.accepted is not None]
    return AttackRate(
        name,
        len(items),
        len(judged),
        failures,
        sum(fooled) / len(fooled),
        share_interval(fooled, groups),
        sum(by_row.values()) / len(by_row),
        sum(differences) / len(differences) if differences else None,
        clustered_mean(differences, [group for _, group in beside]) if differences else None,
        sum(accepted) / len(accepted) if accepted else None,
    )
