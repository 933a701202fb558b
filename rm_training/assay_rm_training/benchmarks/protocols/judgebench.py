"""JudgeBench: pairs whose right answer was verified, hard for judges; for reward models and for pairwise judges.

Source: arXiv 2410.12784 and its repository (code read). A reward model plays one game: A>B if A scores higher,
else B>A, so that equal scores favour B>A. A judge plays two, the second with the responses exchanged: +1 for each
decision that equals the label, -1 for the opposite, 0 for a tie or nothing readable; right if the sum is above 0. The
official figure pools all pairs; papers often report the mean of the four categories: both are given. The repository's
own result files of reward models hold two games; there equal scores sum to 0, which is wrong for either label. Such
files can be evaluated as they are (`judgments`).
"""

from collections.abc import Mapping, Sequence

from assay_rm_training.benchmarks.benchmark import (
    BenchmarkFigures,
    ScoredItems,
    TiePolicy,
    cluster_of,
)
from assay_rm_training.benchmarks.item import LABELS, BenchmarkItem, Outcome, Record, flipped
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Floats, Means, Shares, Stratum, mean_of, pooled, pooled_sizes, sizes_of

#: Prefixes of the sources of a category.
CATEGORIES = {
    "knowledge": "mmlu-pro",
    "reasoning": "livebench-reasoning",
    "math": "livebench-math",
    "coding": "livecodebench",
}


def games_right(decisions: Sequence[str | None], label: str) -> bool:
    """Whether the sum over the games is above 0."""
    return sum((d == label) - (d == flipped(label)) for d in decisions) > 0


def decision_of(scores: Sequence[float]) -> str:
    """A reward model's verdict: equal scores give B>A."""
    return "A>B" if scores[0] > scores[1] else "B>A"


class JudgeBench(PublishedBenchmark, name="judgebench"):
    def read(self, record: Record) -> BenchmarkItem:
        label = record.text("label").replace(" ", "")
        if label not in LABELS:
            raise record.error(f"{label!r} is neither A>B nor B>A", "label")
        source = record.text("source")
        part = next((name for name, start in CATEGORIES.items() if source.startswith(start)), None)
        if part is None:
            raise record.error(f"{source!r} begins with none of {', '.join(CATEGORIES.values())}", "source")
        return BenchmarkItem(
            id=record.identity("pair_id", "id"),
            prompt=record.prompt("question"),
            responses=(record.text("response_A"), record.text("response_B")),
            gold=(1.0, 0.0) if label == "A>B" else (0.0, 1.0),
            subset=source,
            part=part,
            models=(str(record.values.get("response_model") or ""),),
        )

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        label = LABELS[0] if item.gold[0] > item.gold[1] else LABELS[1]
        if outcome.decisions is not None:
            return float(games_right(outcome.decisions, label))
        assert outcome.scores is not None
        if ties == "half" and outcome.scores[0] == outcome.scores[1]:
            return 0.5
        return float(decision_of(outcome.scores) == label)

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        games = max((len(o.decisions) for o in scored.outcomes if o.decisions is not None), default=0)
        columns = ["right", *([f"game_{n + 1}" for n in range(games)] if games > 1 else [])]
        columns += ["both_right", "consistent"] if games > 1 else []
        strata: list[Stratum] = []
        shares: dict[str, list[tuple[str, str]]] = {}
        for name, members in scored.grouped(lambda item: f"{item.part}|{item.subset}|{item.models[0]}").items():
            rows = []
            for item, outcome in members:
                if outcome.failure is None:
                    rows.append((cluster_of(item), self._figures(item, outcome, scored.ties, games)))
                elif scored.failed_as_wrong:
                    rows.append((cluster_of(item), [0.0] * len(columns)))
            if (stratum := Stratum.of(name, columns, rows)) is None:
                continue
            strata.append(stratum)
            part, source, model = name.split("|", 2)
            groups = ["overall", "pooled", part, f"source/{source}"] + ([f"response_model/{model}"] if model else [])
            for group in groups:
                shares.setdefault(group, []).append((name, "right"))
            for column in columns[1:]:
                shares.setdefault(column, []).append((name, column))
        null = sum(d is None for o in scored.outcomes for d in o.decisions or ())
        sizes = sizes_of(strata)
        present = {name.split("|")[0] for name in sizes}
        return BenchmarkFigures(
            strata,
            lambda means: _combine(means, shares, sizes),
            shares=shares,
            sizes=pooled_sizes(shares, sizes),
            counts={
                "ties": scored.tied_pairs(),
                **({"null_decisions": null} if games else {}),
            },
            missing=[name for name in CATEGORIES if name not in present],
        )

    def _figures(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy, games: int) -> list[float]:
        row = [self.credit(item, outcome, ties)]
        if games > 1 and outcome.decisions is not None:
            label = LABELS[0] if item.gold[0] > item.gold[1] else LABELS[1]
            right = [decision == label for decision in outcome.decisions]
            row += [float(r) for r in right]
            row += [float(all(right)), float(len(set(outcome.decisions)) == 1 and outcome.decisions[0] is not None)]
        return row


def _combine(means: Means, shares: Shares, sizes: Mapping[str, int]) -> dict[str, Floats]:
    out = pooled(means, shares, sizes)
    if categories := [out[name] for name in CATEGORIES if name in out]:
        out["category_mean"] = mean_of(categories)
    first = ("overall", "pooled", "category_mean", *CATEGORIES)
    return {name: out[name] for name in (*first, *out) if name in out}


BENCHMARK = JudgeBench()
