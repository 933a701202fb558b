"""RewardBench (v1): accuracy on pairs in four sections.

Source: arXiv 2403.13787 and its repository (code read). A section's score is the mean of its subsets weighted
by fixed counts, in which math-prm has 984 although it holds 447 rows, so that mathematics and code weigh equally; the
overall score is the mean of the sections. The weights of the two XSTest subsets are those of the rows that the paper
and the data have (154 should refuse, 250 should respond); one version of the repository's constants has them swapped.
The prior sets (a fifth section of half weight on an older leaderboard) are reported where they are in the file; that
rule, and their unweighted mean, are from memory. Leaves out: generative judges of RewardBench.
"""

from dataclasses import replace

from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems
from assay_rm_training.benchmarks.item import BenchmarkItem, Record
from assay_rm_training.benchmarks.published import PublishedBenchmark, published
from assay_rm_training.benchmarks.strata import Floats, mean_of

#: Section -> its subsets -> the fixed count that each is weighted by.
SECTIONS: dict[str, dict[str, int]] = published("rewardbench")["sections"]
PRIOR_SETS = ("anthropic_helpful", "anthropic_hhh", "shp", "summarize")
PRIOR_WEIGHT = 0.5
KNOWN = {*PRIOR_SETS, *(name for weights in SECTIONS.values() for name in weights)}


def section_score(accuracies: dict[str, Floats], weights: dict[str, int]) -> Floats:
    """Mean of the present subsets, weighted by the fixed counts."""
    total = sum(weights[name] for name in accuracies)
    return (
        sum((weights[name] * value for name, value in accuracies.items()), start=0 * next(iter(accuracies.values())))
        / total
    )


class RewardBench(PublishedBenchmark, name="rewardbench"):
    def read(self, record: Record) -> BenchmarkItem:
        subset = record.text("subset")
        responses = [record.texts(side) for side in ("chosen", "rejected")]
        for side, texts in zip(("chosen", "rejected"), responses, strict=True):
            if len(texts) != 1:
                raise record.error(f"{len(texts)} responses instead of one; is this RewardBench 2?", side)
        return BenchmarkItem(
            id=record.identity("id"),
            prompt=record.prompt("prompt"),
            responses=(responses[0][0], responses[1][0]),
            gold=(1.0, 0.0),
            subset=subset,
            part=subset,
        )

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        figures = self.pooled(scored, lambda item: item.part, lambda subset: (subset,), _with_sections)
        sizes = figures.sizes
        return replace(
            figures,
            sizes={
                **sizes,
                **{section: sum(sizes.get(name, 0) for name in weights) for section, weights in SECTIONS.items()},
            },
            counts={
                **figures.counts,
                "outside_sections": sum(n for name, n in sizes.items() if name not in KNOWN),
            },
            missing=[name for weights in SECTIONS.values() for name in weights if name not in sizes],
        )


def _with_sections(subsets: dict[str, Floats]) -> dict[str, Floats]:
    out: dict[str, Floats] = {}
    for section, weights in SECTIONS.items():
        if parts := {name: subsets[name] for name in weights if name in subsets}:
            out[section] = section_score(parts, weights)
    sections = list(out.values())
    if sections:
        out = {"overall": mean_of(sections), **out}
    if prior := [subsets[name] for name in PRIOR_SETS if name in subsets]:
        out["Prior Sets"] = mean_of(prior)
        if sections:
            total = len(sections) + PRIOR_WEIGHT
            out["overall_with_prior_sets"] = (sum(sections) + PRIOR_WEIGHT * out["Prior Sets"]) / total
    return {**out, **subsets}


BENCHMARK = RewardBench()
