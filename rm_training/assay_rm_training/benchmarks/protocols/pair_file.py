"""Any file of preference pairs as a benchmark: accuracy, and the unweighted mean over categories and sources.

Reads what `assay eval --data` reads (TRL's explicit form and the normalised form), so that pairs can be scored
elsewhere and models compared on them. Rows without a decided pair are skipped. Leaves out: calibration and margins,
which `assay eval --data` reports.
"""

from assay.data.json_lines import RowError
from assay.data.pairs import pair_of
from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems
from assay_rm_training.benchmarks.item import BenchmarkItem, Record, publisher_id
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Floats, mean_of


class PairFile(PublishedBenchmark, name="pairs"):
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

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        return self.pooled(scored, lambda item: f"{item.part}|{item.subset}", _groups, _with_means)


def _groups(stratum: str) -> list[str]:
    source, category = stratum.split("|", 1)
    return ["overall", *([f"source/{source}"] if source else []), *([f"category/{category}"] if category else [])]


def _with_means(out: dict[str, Floats]) -> dict[str, Floats]:
    for kind in ("category", "source"):
        parts = [value for name, value in out.items() if name.startswith(f"{kind}/")]
        if len(parts) > 1:
            out[f"{kind}_mean"] = mean_of(parts)
    return out


BENCHMARK = PairFile()
