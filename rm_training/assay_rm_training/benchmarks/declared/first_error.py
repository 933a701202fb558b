"""Protocol `first-error`: the first wrong step of a solution, measured as ProcessBench measures it.

A row's `responses` name its list of steps, its `label` the number of the first wrong one from 0, -1 for none. Leaves
out: the figures (`protocols.processbench`).
"""

from collections.abc import Sequence
from dataclasses import replace

from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.declared.declared_benchmark import DeclaredBenchmark
from assay_rm_training.benchmarks.declared.rows import at, require_prompt_fields, step_items
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.protocols.processbench import BENCHMARK, prefixes


class FirstErrors(DeclaredBenchmark):
    """Its items are read by process reward models at the ends of steps, by others at each beginning of the solution."""

    def read_all(self, records: Sequence[Record]) -> list[BenchmarkItem]:
        require_prompt_fields(records, self.described.fields)
        items = []
        for record, case in zip(records, step_items(records, self.described.fields), strict=True):
            steps, label = case.responses, at(record, self.described.fields.label or "label")
            if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
                raise record.error("not the number of a step, or -1 for none", self.described.fields.label or "label")
            gold = tuple(float(label == -1 or number < label) for number in range(len(steps)))
            texts = tuple(str(step) for step in steps)
            items.append(replace(case, responses=prefixes(texts), gold=gold, part=case.part or "all", steps=(texts,)))
        return items

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        return BENCHMARK.credit(item, outcome, ties)

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        figures, mine = BENCHMARK.measure(scored), {case.part for case in scored.items}
        return replace(figures, missing=[part for part in figures.missing if part in mine])

    def statement(self, ties: TiePolicy) -> dict[str, str]:
        return BENCHMARK.statement(ties)
