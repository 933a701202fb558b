"""Policies compared beyond pass@k: right answers by right chains, reinforcement against distillation, policies by
reward models.

Leaves out: the estimates themselves (`capability`), judging chains: a judge is one more reward of a sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from assay.errors import BadInputError
from assay.statistics.intervals import bounds, clustered_mean
from assay.statistics.pass_at_k import estimates_at
from assay_policy_training.measures.capability import (
    CHANGE_COLUMNS,
    PassAtKMeasure,
    mean_of,
    paired_change,
    verdict_counts,
)
from assay_policy_training.measures.kind import Measured, Reads, require_pair
from assay_policy_training.measures.samples import PolicySample

VERIFIED = "verified"  #: what the verdicts are called beside rewards


@dataclass(frozen=True)
class ChainPassAtK:
    """CoT-Pass@K (arXiv 2506.14245): pass@k of samples whose answer and chain of thought are both right.

    `judge`: the part of the reward (`--reward NAME=...`) that judges the chain; above `above` it is right. A right
    answer whose chain has no verdict is left out as unjudged, and counted in `unreadable`; a wrong answer fails
    whatever its chain. Answers need constraints, since the reward that `--pass-above` reads holds the judge's part.
    """

    reads: ClassVar[Reads] = "samples"

    judge: str = "judge"
    above: float = 0.5
    k: tuple[int, ...] = ()

    def measure(self, policies: Mapping[str, Sequence[PolicySample]]) -> Measured:
        parts = {name for samples in policies.values() for sample in samples for name in sample.parts}
        if self.judge not in parts:
            listed = f"they have {', '.join(sorted(parts))}" if parts else "they have no reward"
            raise BadInputError(f"no part of the samples is called {self.judge!r}; {listed}", field="judge")
        chains = {
            label: [replace(sample, passed=self._chain(sample)) for sample in samples]
            for label, samples in policies.items()
        }
        measured = PassAtKMeasure(self.k).measure(chains)
        counts = {}
        for label, samples in policies.items():
            verdicts = [chain.passed for sample, chain in zip(samples, chains[label], strict=True) if sample.passed]
            counts[label] = {
                "right_answers": len(verdicts),
                "wrong_chains": verdicts.count(False),
                "unreadable": verdicts.count(None),
            }
        table = [row | counts[row["policy"]] for row in measured.table]
        return Measured(table, measured.facts)

    def _chain(self, sample: PolicySample) -> bool | None:
        if not sample.passed:
            return sample.passed
        verdict = sample.parts.get(self.judge)
        return None if verdict is None else verdict > self.above


@dataclass(frozen=True)
class DistillationTable:
    """Accuracy (pass@1) and capability (pass@k) of policies made in different ways from one base, over all prompts and
    by how the base does on them: never, sometimes, always right. `k`: of capability; 0: the most that every prompt has.

    After "Reinforcement learning vs. distillation: understanding accuracy and capability" (arXiv 2505.14216).
    """

    reads: ClassVar[Reads] = "samples"

    k: int = 0

    def measure(self, policies: Mapping[str, Sequence[PolicySample]]) -> Measured:
        base = require_pair(policies, "distillation")
        counts = {label: verdict_counts(samples) for label, samples in policies.items()}
        k = self.k or min(n for groups in counts.values() for n, _ in groups.values())
        groups = {"all": set(counts[base])}
        for name in ("never", "sometimes", "always"):
            groups[name] = {prompt for prompt, (n, c) in counts[base].items() if name == _solved(n, c)}
        table = []
        for group, prompts in groups.items():
            for label in policies if prompts else ():
                row: dict[str, Any] = {"base_right": group, "policy": label}
                for column, size in (("accuracy", 1), ("capability", k)):
                    before, after = (
                        estimates_at({p: counts[name][p] for p in prompts if p in counts[name]}, size)
                        for name in (base, label)
                    )
                    change = paired_change(before, after) if label != base else dict.fromkeys(CHANGE_COLUMNS)
                    row |= {column: mean_of(list(after.values()))}
                    row |= {f"{column}_{name}": value for name, value in change.items()}
                    row["prompts"] = len(after)
                table.append(row)
        return Measured(table, {"base": base, "k": k})


def _solved(samples: int, right: int) -> str:
    return "never" if not right else "always" if right == samples else "sometimes"


@dataclass(frozen=True)
class RewardMatrix:
    """Policies by reward models: the mean of each part of the reward, with the policy's rank by it.

    Where a policy trained on one reward leads by that one and not by others, or not in the verdicts (`verified`), its
    objective and its use differ ("The alignment ceiling", arXiv 2311.00168). Intervals are over prompts.
    """

    reads: ClassVar[Reads] = "samples"

    def measure(self, policies: Mapping[str, Sequence[PolicySample]]) -> Measured:
        names = dict.fromkeys(name for samples in policies.values() for sample in samples for name in sample.parts)
        if any(sample.passed is not None for samples in policies.values() for sample in samples):
            names[VERIFIED] = None
        if not names:
            raise BadInputError("the samples have no reward and no verdict: give --reward, or prompts with answers")
        table = []
        for name in names:
            rows = [self._row(name, label, samples) for label, samples in policies.items()]
            means = [row["mean"] for row in rows if row["mean"] is not None]
            for row in rows:
                row["rank"] = None if row["mean"] is None else 1 + sum(mean > row["mean"] for mean in means)
            table += rows
        return Measured(table)

    def _row(self, name: str, label: str, samples: Sequence[PolicySample]) -> dict[str, Any]:
        numbers = [(s.prompt_id, s.passed if name == VERIFIED else s.parts.get(name)) for s in samples]
        measured = [(prompt, float(value)) for prompt, value in numbers if value is not None]
        values, prompts = [value for _, value in measured], [prompt for prompt, _ in measured]
        low, high = bounds(clustered_mean(values, prompts) if values else None)
        row = {"reward": name, "policy": label, "mean": mean_of(values), "low": low, "high": high}
        return row | {"samples": len(values), "missing": len(samples) - len(values)}
