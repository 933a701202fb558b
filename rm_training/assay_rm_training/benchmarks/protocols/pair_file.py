"""Any file of preference pairs as a benchmark: accuracy, and the unweighted mean over categories and sources.

Reads what `assay eval --data` reads (TRL's explicit form and the normalised form), so that pairs can be scored
elsewhere and models compared on them. Rows without a decided pair are skipped. Leaves out: calibration and margins,
which `assay eval --data` reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.data.json_lines import RowError
from assay.data.pairs import pair_of
from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import (
    Benchmark,
    BenchmarkFigures,
    TiePolicy,
    grouped,
    strata_of,
    tied_pairs,
    win,
)
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record, publisher_id
from assay_rm_training.benchmarks.strata import Floats, Means, Shares, mean_of, pooled, pooled_sizes, sizes_of


class PairFile(Benchmark):
    name = "pairs"
    title = "Pair file"
    source = "the share of pairs whose chosen response scores higher"
    obtain = "name a file with --path: rows with prompt, chosen and rejected"

    def read(self, record: Record) -> BenchmarkItem | None:
        if record.values.get("chosen") is None and record.values.get("rejected") is None:
            return None
        try:
            pair = pair_of(dict(record.values))
        except RowError as error:
            raise BadInputError(error.reason, file=record.file, row=record.row, field=error.field) from error
        return BenchmarkItem(
            id=publisher_id(record.values.get("id")) or f"row-{record.row}",
            prompt=pair.prompt,
            responses=(pair.chosen, pair.rejected),
            gold=(1.0, 0.0),
            subset=pair.category,
            part=pair.source,
        )

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        assert outcome.scores is not None
        return win(outcome.scores[0], outcome.scores[1], ties)

    def measure(
        self,
        items: Sequence[BenchmarkItem],
        outcomes: Sequence[Outcome],
        *,
        ties: TiePolicy = "official",
        failed_as_wrong: bool = False,
        seed: int = 0,
    ) -> BenchmarkFigures:
        strata = strata_of(
            grouped(items, outcomes, lambda item: f"{item.part}|{item.subset}"),
            ("accuracy",),
            lambda _, s: [win(s[0], s[1], ties)],
            failed_as_wrong=failed_as_wrong,
        )
        shares: dict[str, list[tuple[str, str]]] = {}
        for stratum in strata:
            source, category = stratum.name.split("|", 1)
            groups = ["overall"]
            groups += [f"source/{source}"] if source else []
            groups += [f"category/{category}"] if category else []
            for group in groups:
                shares.setdefault(group, []).append((stratum.name, "accuracy"))
        sizes = sizes_of(strata)
        return BenchmarkFigures(
            strata,
            lambda means: _combine(means, shares, sizes),
            shares=shares,
            sizes=pooled_sizes(shares, sizes),
            counts={"ties": tied_pairs(outcomes)},
        )

    def statement(self, ties: TiePolicy) -> dict[str, str]:
        return {
            "unit": "pair",
            "correct_when": "score(chosen) > score(rejected)",
            "tie": "wrong" if ties == "official" else "counts 1/2",
            "aggregation": "overall = pooled over pairs; category_mean and source_mean = unweighted means of the parts",
            "failures": "left out of every mean and counted",
        }


def _combine(means: Means, shares: Shares, sizes: Mapping[str, int]) -> dict[str, Floats]:
    out = pooled(means, shares, sizes)
    for kind in ("category", "source"):
        parts = [value for name, value in out.items() if name.startswith(f"{kind}/")]
        if len(parts) > 1:
            out[f"{kind}_mean"] = mean_of(parts)
    return out


BENCHMARK = PairFile()
