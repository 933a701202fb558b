"""The base of declared benchmarks: per-item figures, averaged over groups of items.

A protocol is a subclass that names its `columns` and computes them for one item. The first column, or the description's
`headline`, is reported as `overall`. Leaves out: reading rows (`rows`), what is no mean over items (`system_ranking`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import Benchmark, BenchmarkFigures, ScoredItems, TiePolicy, cluster_of, win
from assay_rm_training.benchmarks.declared.description import BenchmarkDescription
from assay_rm_training.benchmarks.declared.rows import at, items_of, require_prompt_fields
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.strata import Floats, Means, Stratum, mean_of, pooled


class DeclaredBenchmark(Benchmark):
    """`columns`: what is computed of each item, the headline first. `pairwise`: items have exactly two responses."""

    columns: ClassVar[tuple[str, ...]] = ()
    pairwise: ClassVar[bool] = False
    words: ClassVar[Mapping[str, str]] = {}  #: of the statement
    constants = True

    def __init__(self, description: BenchmarkDescription) -> None:
        """Raises BadInputError for a headline that the protocol does not compute."""
        self.described = description
        if description.headline and description.headline not in self.columns:
            columns = ", ".join(self.columns)
            raise BadInputError(f"is none of {columns}" if columns else "this protocol has its own", field="headline")
        self.name = description.name  # type: ignore[misc]
        self.title, self.source = description.title, description.source  # type: ignore[misc]
        self.hub, self.obtain = description.hub, description.obtain  # type: ignore[misc]
        self.rows = description.rows
        self.id_fields = ("id", *description.fields.id)  # type: ignore[misc]
        self.headline = description.headline or next(iter(self.columns), "")

    def read(self, record: Record) -> BenchmarkItem | None:
        return next(iter(self.read_all([record])), None)

    def read_all(self, records: Sequence[Record]) -> list[BenchmarkItem]:
        fields = self.described.fields
        require_prompt_fields(records, fields)
        if self.described.skip_incomplete:
            records = [r for r in records if all(at(r, path) is not None for path in fields.responses)]
        items = items_of(records, fields)
        for case in items:
            self.check_item(case)
        return items

    def check_item(self, case: BenchmarkItem) -> None:
        """Raises BadInputError naming the row for an item that the protocol cannot measure."""
        if self.pairwise and len(case.responses) != 2:
            raise row_fault(case, f"{len(case.responses)} responses where the protocol compares two")
        if len(case.responses) < 2:
            raise row_fault(case, "one response: there is nothing to compare it with")

    def figures(self, case: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> list[float]:
        """The columns of one item that has not failed; NaN where it has no such figure."""
        raise NotImplementedError

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        return self.figures(item, outcome, ties)[self.columns.index(self.headline)]

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        strata: list[Stratum] = []
        for group, members in scored.grouped(lambda case: case.part).items():
            rows: list[tuple[str, Sequence[float]]] = []
            for case, outcome in members:
                if outcome.failure is None:
                    rows.append((cluster_of(case), self.figures(case, outcome, scored.ties)))
                elif scored.failed_as_wrong:
                    equal = Outcome((0.0,) * len(case.responses))
                    wrong = [0.0 * figure for figure in self.figures(case, equal, scored.ties)]  # NaN stays NaN
                    rows.append((cluster_of(case), wrong))
            stratum = Stratum.of(group, self.columns, rows)
            if stratum is not None:
                strata.append(stratum)
        shares: dict[str, list[tuple[str, str]]] = {}
        for column in [self.headline, *(name for name in self.columns if name != self.headline)]:
            label = "overall" if column == self.headline else column
            for stratum in strata:
                if not np.isnan(stratum.column(column)).all():
                    shares.setdefault(label, []).append((stratum.name, column))
                    if stratum.name:
                        shares[f"{stratum.name}" if label == "overall" else f"{stratum.name}/{label}"] = [
                            (stratum.name, column)
                        ]
        by_groups = self.described.overall == "groups"
        labels = {"overall", *self.columns} if by_groups else set[str]()
        measured = {(s.name, column): int((~np.isnan(s.column(column))).sum()) for s in strata for column in s.columns}
        groups = dict.fromkeys(group for some in self.described.means.values() for group in some)
        return BenchmarkFigures(
            strata,
            lambda means: self._combined(means, strata, shares, labels),
            shares={name: members for name, members in shares.items() if name not in labels},
            sizes={name: sum(measured[member] for member in members) for name, members in shares.items()},
            counts={"ties": scored.tied_pairs()},
            missing=[group for group in groups if not measured.get((group, self.headline))],
        )

    def _combined(
        self, means: Means, strata: Sequence[Stratum], shares: Mapping[str, Sequence[tuple[str, str]]], labels: set[str]
    ) -> dict[str, Floats]:
        out: dict[str, Floats] = {}
        for name, members in shares.items():
            if name in labels:
                out[name] = mean_of([means[f"{group}/{column}"] for group, column in members])
                continue
            column = members[0][1]
            counts = {s.name: int((~np.isnan(s.column(column))).sum()) for s in strata}
            out |= pooled(means, {name: members}, counts)
        for name, groups in self.described.means.items():
            present = [means[f"{g}/{self.headline}"] for g in groups if f"{g}/{self.headline}" in means]
            if present:
                out[name] = mean_of(present)
        return {name: out[name] for name in sorted(out, key=lambda name: name != "overall")}

    def statement(self, ties: TiePolicy) -> dict[str, str]:
        over = "the groups" if self.described.overall == "groups" else "the items"
        words = dict(self.words)
        half = words.pop("tie_half", words["tie"])
        return {
            **words,
            "tie": words["tie"] if ties == "official" else half,
            "aggregation": f"overall = mean of {self.headline} over {over}",
            "failures": "left out of every mean and counted",
        }


def verdict(outcome: Outcome, margin: float = 0.0) -> float:
    """1 for the first response, 0 for the second, 1/2 for a tie: a difference of scores of at most `margin`, or games
    of a judge that add up to none."""
    if outcome.decisions is not None:
        total: float = sum((game == "A>B") - (game == "B>A") for game in outcome.decisions)
    else:
        assert outcome.scores is not None
        difference = outcome.scores[0] - outcome.scores[1]
        total = difference if abs(difference) > margin else 0.0
    return 0.5 + 0.5 * float(np.sign(total))


def right(gold: Sequence[float], first_wins: float, ties: TiePolicy) -> float:
    """Credit of a verdict on a decided pair; NaN for a tied one."""
    if gold[0] == gold[1]:
        return math.nan
    better = first_wins if gold[0] > gold[1] else 1.0 - first_wins
    return win(better, 0.5, ties)


def row_fault(case: BenchmarkItem, message: str, field: str | None = None) -> BadInputError:
    """An error that names the item's row."""
    return Record(case.file, case.row, {}).error(message, field)
