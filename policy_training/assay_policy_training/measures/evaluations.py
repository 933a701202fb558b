"""Measures of finished trainings, from their `evaluation.json` files: how seeds differ, what training on one domain
does to others.

Leaves out: evaluating (`training.evaluation`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from assay.errors import BadInputError
from assay.statistics.intervals import bounds
from assay.statistics.seeds import (
    interquartile_mean,
    probability_of_improvement,
    score_matrix,
    stratified_bootstrap,
)
from assay_policy_training.measures.capability import mean_of
from assay_policy_training.measures.kind import Measured, Reads

Figure = Literal["pass_rate", "reward"]
ONE_SET = "held-out"  #: what a single evaluation set is called


@dataclass(frozen=True)
class Seeds:
    """Interquartile mean and mean over runs and evaluation sets, and the probability that a run is better than one of
    the first method's. A method is several runs: `LABEL=RUN,RUN,RUN`. `figure`: pass_rate or reward, after training.

    A set that one of the runs has not measured is left out, and counted.
    """

    reads: ClassVar[Reads] = "evaluations"

    figure: Figure = "pass_rate"

    def measure(self, policies: Mapping[str, Sequence[Mapping[str, Any]]]) -> Measured:
        runs = {label: [figures(payload, self.figure) for payload in payloads] for label, payloads in policies.items()}
        every = [scores for listed in runs.values() for scores in listed]
        names = list(dict.fromkeys(name for scores in every for name in scores))
        tasks = [name for name in names if all(scores.get(name) is not None for scores in every)]
        if not tasks:
            raise BadInputError(f"no evaluation set has the {self.figure} of every run")
        matrices = {
            label: score_matrix([[scores[name] for name in tasks] for scores in listed])
            for label, listed in runs.items()
        }
        base = next(iter(matrices))
        table = []
        for label, scores in matrices.items():
            low, high = bounds(stratified_bootstrap(interquartile_mean, scores))
            row = {"policy": label, "iqm": interquartile_mean(scores), "low": low, "high": high}
            row |= {"mean": float(scores.mean()), "runs": len(scores), "sets": len(tasks)}
            if len(matrices) > 1:
                improvement = probability_of_improvement(scores, matrices[base]) if label != base else None
                interval = None
                if label != base:
                    interval = stratified_bootstrap(probability_of_improvement, scores, matrices[base])
                low, high = bounds(interval)
                row |= {"better_than_base": improvement, "better_low": low, "better_high": high}
            table.append(row)
        return Measured(table, {"base": base, "sets": tasks, "sets_left_out": len(names) - len(tasks)})


@dataclass(frozen=True)
class TransferMatrix:
    """What training on one domain does to others: `DOMAIN=RUN[,RUN...]`, each run evaluated on every domain's set
    (`--eval-prompts maths=... --eval-prompts code=...`); a row for each domain trained on and set.

    `change` is the mean over runs. Its interval is over prompts for one run, over runs for LEAST_RUNS of them or more.
    """

    reads: ClassVar[Reads] = "evaluations"

    figure: Figure = "pass_rate"

    def measure(self, policies: Mapping[str, Sequence[Mapping[str, Any]]]) -> Measured:
        names = list(dict.fromkeys(name for runs in policies.values() for run in runs for name in evaluation_sets(run)))
        table = []
        for label, runs in policies.items():
            for name in names:
                before, after = (
                    [figures(run, self.figure, when).get(name) for run in runs] for when in ("before", "after")
                )
                pairs = [(b, a) for b, a in zip(before, after, strict=True) if a is not None and b is not None]
                row: dict[str, Any] = {"trained_on": label, "evaluated_on": name}
                changes = [a - b for b, a in pairs]
                for column, values in (("before", [b for b, _ in pairs]), ("after", [a for _, a in pairs])):
                    row[column] = mean_of(values)
                row["change"] = mean_of(changes)
                row["low"], row["high"] = self._interval(runs, name, changes)
                table.append(row | {"runs": len(pairs), "unmeasured": len(runs) - len(pairs)})
        return Measured(table, {"figure": self.figure})

    def _interval(
        self, runs: Sequence[Mapping[str, Any]], name: str, changes: Sequence[float]
    ) -> tuple[float | None, float | None]:
        if len(runs) == 1 and changes:
            change = evaluation_sets(runs[0])[name]["change"][self.figure]
            return (None, None) if change is None else (change["low"], change["high"])
        if not changes:
            return None, None
        return bounds(stratified_bootstrap(lambda scores: float(scores.mean()), score_matrix([[c] for c in changes])))


def figures(evaluation: Mapping[str, Any], figure: Figure, when: str = "after") -> dict[str, Any]:
    """Evaluation set -> its figure, None where it was not measured."""
    if figure not in ("pass_rate", "reward"):
        raise BadInputError(f"pass_rate or reward, not {figure!r}", field="figure")
    return {name: _figure(payload[when], figure) for name, payload in evaluation_sets(evaluation).items()}


def evaluation_sets(evaluation: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Evaluation set -> its `before`, `after` and `change`."""
    sets: Mapping[str, Mapping[str, Any]] = evaluation.get("sets") or {ONE_SET: evaluation}
    return sets


def _figure(payload: Mapping[str, Any], figure: Figure) -> float | None:
    if figure == "reward":
        reward: float | None = payload.get("reward_mean")
        return reward
    verifier = payload.get("verifier")
    return None if verifier is None else verifier["share"]
