"""What policies can solve: unbiased pass@k, and the right answers that training lost and gained.

Leaves out: which samples are right (`samples`).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, bounds, clustered_mean, share_interval
from assay.statistics.pass_at_k import estimates_at, powers_to
from assay_policy_training.measures.kind import Measured, Reads, require_pair
from assay_policy_training.measures.samples import PolicySample, by_prompt


@dataclass(frozen=True)
class PassAtKMeasure:
    """pass@k of each policy, mean over prompts, and its change from the first policy's, each prompt with itself.

    `k`: numbers of samples; empty: powers of two up to the most that every policy and prompt has.
    """

    reads: ClassVar[Reads] = "samples"

    k: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.k, list | tuple) or not all(type(k) is int and k >= 1 for k in self.k):
            raise BadInputError(f"a list of numbers from 1, not {self.k!r}", field="k")

    def measure(self, policies: Mapping[str, Sequence[PolicySample]]) -> Measured:
        counts = {label: verdict_counts(samples) for label, samples in policies.items()}
        unjudged = {label: sum(sample.passed is None for sample in samples) for label, samples in policies.items()}
        base = next(iter(counts))
        table = []
        for k in self.k or powers_to(min(n for groups in counts.values() for n, _ in groups.values())):
            estimates = {label: estimates_at(groups, k) for label, groups in counts.items()}
            for label, by_id in estimates.items():
                values = list(by_id.values())
                row: dict[str, Any] = {"policy": label, "k": k, "pass_at_k": mean_of(values)}
                low, high = bounds(share_interval(values, list(by_id)) if values else None)
                row |= {"low": low, "high": high}
                row |= {"prompts": len(values), "left_out": len(counts[label]) - len(values)}
                row |= {"unjudged": unjudged[label]}
                if len(policies) > 1:
                    row |= paired_change(estimates[base], by_id) if label != base else dict.fromkeys(CHANGE_COLUMNS)
                table.append(row)
        return Measured(table, {"base": base})


@dataclass(frozen=True)
class Support:
    """Right answers that the base gives and a policy does not (lost), gives only (gained), or both give (kept).

    After "The Invisible Leash" (arXiv 2507.14843): retention is kept / (kept + lost), discovery gained / (kept +
    gained), net change (gained - lost) / (kept + lost + gained); empirical support is here what n samples show. Each
    lost answer is listed, with the largest share that would leave it out of the policy's n samples in 5 % of cases
    (1 - 0.05^(1/n)): below the base's share it is more than chance. `answer`: a regular expression whose last match's
    first group is the answer; empty: the whole response without its white space.
    """

    reads: ClassVar[Reads] = "samples"

    answer: str = ""

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.answer).groups
        except re.error as error:
            raise BadInputError(f"{self.answer!r} is no regular expression: {error}", field="answer") from error
        if self.answer and not groups:
            raise BadInputError(f"{self.answer!r} has no group, which would be the answer", field="answer")

    def measure(self, policies: Mapping[str, Sequence[PolicySample]]) -> Measured:
        base = require_pair(policies, "support")
        right = {label: self._right(samples) for label, samples in policies.items()}
        judged = {label: verdict_counts(samples) for label, samples in policies.items()}
        table, changed = [], []
        for label in list(policies)[1:]:
            common = judged[base].keys() & judged[label].keys()
            before, after = ({key for key in right[name] if key[0] in common} for name in (base, label))
            common_answers, lost, gained = len(before & after), before - after, after - before
            solved = [{prompt for prompt, _ in answers} for answers in (before, after)]
            table.append(
                {
                    "policy": label,
                    "kept": common_answers,
                    "lost": len(lost),
                    "gained": len(gained),
                    "retention": _share(common_answers, len(before)),
                    "discovery": _share(len(gained), len(after)),
                    "net_change": _share(len(gained) - len(lost), len(before | after)),
                    "prompts_lost": len(solved[0] - solved[1]),
                    "prompts_gained": len(solved[1] - solved[0]),
                    "prompts": len(common),
                    "left_out": len(judged[base].keys() | judged[label].keys()) - len(common),
                    "unjudged": sum(s.passed is None for name in (base, label) for s in policies[name]),
                }
            )
            for change, answers, giver, other in (("lost", lost, base, label), ("gained", gained, label, base)):
                for prompt, answer in sorted(answers):
                    n, m = judged[giver][prompt][0], judged[other][prompt][0]
                    share, most = right[giver][prompt, answer] / n, 1 - 0.05 ** (1 / m)
                    row = {"policy": label, "change": change, "prompt_id": prompt, "answer": answer}
                    changed.append(row | {"share": share, "other_at_most": most, "beyond_chance": share > most})
        return Measured(table, {"base": base, "answers": changed})

    def _right(self, samples: Sequence[PolicySample]) -> Counter[tuple[str, str]]:
        """(Prompt, answer) -> how often it was given, of right answers."""
        return Counter((s.prompt_id, self._answer(s.response)) for s in samples if s.passed)

    def _answer(self, response: str) -> str:
        matches = list(re.finditer(self.answer, response)) if self.answer else []
        return " ".join((matches[-1].group(1) or "" if matches else response).split())


CHANGE_COLUMNS = ("change", "change_low", "change_high")


def verdict_counts(samples: Sequence[PolicySample]) -> dict[str, tuple[int, int]]:
    """Prompt -> how many of its samples have a verdict, and how many are right. Raises BadInputError for none."""
    groups = {
        prompt: [sample.passed for sample in group if sample.passed is not None]
        for prompt, group in by_prompt(samples).items()
    }
    if not any(groups.values()):
        raise BadInputError(
            "no sample has a verdict: give prompts with constraints or answers, or --reward with --pass-above"
        )
    return {prompt: (len(verdicts), sum(verdicts)) for prompt, verdicts in groups.items() if verdicts}


def paired_change(base: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float | None]:
    differences = {prompt: after[prompt] - base[prompt] for prompt in after if prompt in base}
    values = list(differences.values())
    interval: Interval | None = clustered_mean(values, list(differences)) if values else None
    return dict(zip(CHANGE_COLUMNS, (mean_of(values), *bounds(interval)), strict=True))


def mean_of(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(part: int, total: int) -> float | None:
    return part / total if total else None
