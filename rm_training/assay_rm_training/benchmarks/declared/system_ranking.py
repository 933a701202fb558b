"""Protocol `system-ranking`: does a model rank systems as a published leaderboard does?

A system's strength is the mean reward of its responses, each less the mean of all systems on the same prompt. Reported:
Spearman's rho and Kendall's tau-b with the published values, with intervals that resample systems; the same of mean
length; and what is left of rho at equal length (the partial rank correlation). A response that failed drops out alone.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from assay.domain import response_text
from assay.errors import BadInputError
from assay.statistics.rank_correlation import Vector, average_ranks, kendall_tau_b, pearson, spearman
from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.declared.declared_benchmark import DeclaredBenchmark
from assay_rm_training.benchmarks.declared.description import BenchmarkDescription
from assay_rm_training.benchmarks.declared.rows import at, require_prompt_fields, single_responses
from assay_rm_training.benchmarks.figures.vote_figures import correlation_interval
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.records import read_file
from assay_rm_training.benchmarks.strata import NamedInterval

LEAST_SYSTEMS = 3


class SystemRanking(DeclaredBenchmark):
    """An item is one response of one system, whose gold is the system's published value."""

    words: ClassVar[Mapping[str, str]] = {
        "unit": "system: mean over prompts of its reward less the prompt's mean reward",
        "correct_when": "systems stand in the published order",
        "tie": "equal means share their rank",
    }

    def __init__(self, description: BenchmarkDescription) -> None:
        super().__init__(description)
        if description.systems is None:
            raise BadInputError("missing: the file with each system's published value", field="systems")
        self._published = _published(description)

    def read_all(self, records: Sequence[Record]) -> list[BenchmarkItem]:
        published = self._published
        require_prompt_fields(records, self.described.fields)
        items = single_responses(records, self.described.fields)
        return [replace(case, gold=(published[case.models[0]],)) for case in items if case.models[0] in published]

    def check(self, items: Sequence[BenchmarkItem]) -> None:
        super().check(items)
        if len(systems := {case.models[0] for case in items}) < LEAST_SYSTEMS:
            raise BadInputError(f"{len(systems)} systems with a published value; a ranking needs {LEAST_SYSTEMS}")

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        return float("nan")  # a single response is neither right nor wrong

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        members = [(i, o.scores[0]) for i, o in zip(scored.items, scored.outcomes, strict=True) if o.scores is not None]
        systems = {case.models[0] for case, _ in members}
        return BenchmarkFigures(
            (),
            lambda means: {},
            sizes=dict.fromkeys(("overall", "kendall_tau_b", "length", "equal_length"), len(systems)),
            missing=sorted({case.models[0] for case in scored.items} - systems),
            counts={"systems": len(systems), "prompts": len({case.part for case, _ in members})},
            extra_figures=lambda: ranking_figures(
                [case.models[0] for case, _ in members],
                [case.part for case, _ in members],
                [score for _, score in members],
                [len(response_text(case.responses[0])) for case, _ in members],
                {case.models[0]: case.gold[0] for case, _ in members},
                seed=scored.seed,
            ),
        )

    def statement(self, ties: TiePolicy) -> dict[str, str]:
        return {
            **super().statement(ties),
            "values": "correlations, -1 to 1",
            "aggregation": "overall = Spearman's rho over systems; length: of mean length; equal_length: partial",
        }


def ranking_figures(
    systems: Sequence[str],
    prompts: Sequence[str],
    rewards: Sequence[float],
    lengths: Sequence[float],
    published: Mapping[str, float],
    *,
    seed: int = 0,
) -> dict[str, tuple[float, NamedInterval | None]]:
    """Figures by name, of responses given by system, prompt, reward and length in characters."""
    means = system_means(systems, prompts, rewards)
    if len(means) < LEAST_SYSTEMS:
        return {}
    sizes: dict[str, list[float]] = defaultdict(list)
    for system, length in zip(systems, lengths, strict=True):
        sizes[system].append(float(length))
    mine = np.array(list(means.values()))
    values = np.array([published[name] for name in means])
    means_of_length = np.array([float(np.mean(sizes[name])) for name in means])
    out: dict[str, tuple[float, NamedInterval | None]] = {}
    for name, measure in (("overall", spearman), ("kendall_tau_b", kendall_tau_b)):
        out[name] = measure(mine, values), correlation_interval(measure, mine, values, seed=seed)
    by_length = correlation_interval(spearman, means_of_length, values, seed=seed)
    out["length"] = spearman(means_of_length, values), by_length
    out["equal_length"] = partial_rank_correlation(mine, values, means_of_length), None
    return out


def system_means(systems: Sequence[str], prompts: Sequence[str], rewards: Sequence[float]) -> dict[str, float]:
    """Each system's mean reward, relative to the mean over all responses to the same prompt."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for prompt, reward in zip(prompts, rewards, strict=True):
        by_prompt[prompt].append(reward)
    centre = {prompt: float(np.mean(values)) for prompt, values in by_prompt.items()}
    by_system: dict[str, list[float]] = defaultdict(list)
    for system, prompt, reward in zip(systems, prompts, rewards, strict=True):
        by_system[system].append(reward - centre[prompt])
    return {system: float(np.mean(values)) for system, values in by_system.items()}


def partial_rank_correlation(x: Vector, y: Vector, control_by: Vector) -> float:
    """Pearson's correlation of the ranks of x and y, less what those of `control_by` explain linearly of each."""
    ranks = [average_ranks(values) for values in (x, y, control_by)]
    control = ranks[2] - ranks[2].mean()
    scale = float(control @ control)
    residuals = [r - r.mean() - (control * float(control @ r) / scale if scale else 0.0) for r in ranks[:2]]
    return pearson(residuals[0], residuals[1])


def _published(description: BenchmarkDescription) -> dict[str, float]:
    assert description.systems is not None
    file, out = description.systems, dict[str, float]()
    for record in read_file(Path(file.rows)):
        value: Any = at(record, file.value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise record.error(f"not a number: {value!r:.60}", file.value)
        out[str(record.get(file.system))] = float(value)
    return out
