"""The base class of benchmarks: reading rows, crediting items, named aggregates.

Covers: the figures that a protocol returns, tie policies. Leaves out: the protocols (`protocols/`), the report of an
evaluation (`report.py`).
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias

from assay.errors import BadInputError
from assay.ids import FIELD, RECORD
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.records import HubSplit
from assay_rm_training.benchmarks.strata import (
    Combine,
    Floats,
    NamedInterval,
    Shares,
    Stratum,
    pooled,
    pooled_sizes,
    sizes_of,
)

#: "official": as the benchmark's own scorer. "half": a tied pair counts 1/2.
TiePolicy: TypeAlias = Literal["official", "half"]
ScoredItem: TypeAlias = tuple[BenchmarkItem, Outcome]


@dataclass(frozen=True)
class CurvePoint:
    """Expected gold of the best of `n` by the model, over `items` lists of at least n; `kl`: ln n - (n - 1)/n nats."""

    n: int
    gold: float
    kl: float
    items: int
    interval: NamedInterval | None = None


@dataclass(frozen=True)
class BenchmarkFigures:
    """One protocol's figures of one model, before they are reduced.

    `shares`: aggregates that are a share of pooled items -> their (stratum, column)s, which get a Wilson interval where
    that is sound. `extra_figures`: aggregates that are not a function of strata, with their intervals; like `curves`
    computed on demand, as they need their own bootstrap. `sizes`: number of items of an aggregate. `missing`: parts of
    the benchmark of which there is no scored item.
    """

    strata: Sequence[Stratum]
    combine: Combine
    shares: Shares = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    extra_figures: Callable[[], Mapping[str, tuple[float, NamedInterval | None]]] = dict
    curves: Callable[[], Mapping[str, Sequence[CurvePoint]]] = dict
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class ScoredItems:
    """Items with one model's outcomes, and how they count. Failed items are left out, or with `failed_as_wrong` get no
    credit."""

    items: Sequence[BenchmarkItem]
    outcomes: Sequence[Outcome]
    ties: TiePolicy = "official"
    failed_as_wrong: bool = False
    seed: int = 0

    def grouped(self, key: Callable[[BenchmarkItem], str]) -> dict[str, list[ScoredItem]]:
        return grouped(zip(self.items, self.outcomes, strict=True), key)

    def stratum(
        self,
        name: str,
        members: Iterable[ScoredItem],
        columns: Sequence[str],
        figures: Callable[[BenchmarkItem, Sequence[float]], Sequence[float]],
    ) -> Stratum | None:
        """The figures of these items, 0 in every column for a failed one that counts; None without any item."""
        rows: list[tuple[str, Sequence[float]]] = []
        for item, outcome in members:
            if outcome.scores is not None:
                rows.append((cluster_of(item), figures(item, outcome.scores)))
            elif self.failed_as_wrong:
                rows.append((cluster_of(item), [0.0] * len(columns)))
        return Stratum.of(name, columns, rows)

    def strata(
        self,
        groups: Mapping[str, Iterable[ScoredItem]],
        columns: Sequence[str],
        figures: Callable[[BenchmarkItem, Sequence[float]], Sequence[float]],
    ) -> list[Stratum]:
        """A stratum of each group, without those that have no figure."""
        strata = [self.stratum(name, members, columns, figures) for name, members in groups.items()]
        return [stratum for stratum in strata if stratum is not None]

    def tied_pairs(self) -> int:
        """Scored items of two responses whose scores are equal."""
        pairs = [o.scores for o in self.outcomes if o.scores is not None and len(o.scores) == 2]
        return sum(first == second for first, second in pairs)


class Benchmark(ABC):
    """One benchmark. Subclasses are stateless; `measure` is a pure function."""

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]  #: paper, and how the protocol is known
    hub: ClassVar[tuple[HubSplit, ...]] = ()
    obtain: ClassVar[str] = ""  #: how to get the files where there is no network
    id_fields: ClassVar[tuple[str, ...]] = ("id",)
    takes_decisions: ClassVar[bool] = False  #: also takes pairwise verdicts of a judge
    rows: Sequence[str] = ()  #: files that are read where none is named
    constants: ClassVar[bool] = False  #: NaN in a JSON file is a value that is missing, not an error

    @abstractmethod
    def read(self, record: Record) -> BenchmarkItem | None:
        """The item of one row; None for a row to skip (a tie where ties do not count). Raises BadInputError."""

    def read_all(self, records: Sequence[Record]) -> list[BenchmarkItem]:
        """The items of all rows, each with its file and row. Raises BadInputError."""
        read_items = [(record, self.read(record)) for record in records]
        return [replace(item, file=record.file, row=record.row) for record, item in read_items if item is not None]

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        """How right one scored item is, 0 to 1: what per-item results show. Here of a pair, the better one first."""
        assert outcome.scores is not None
        return win(outcome.scores[0], outcome.scores[1], ties)

    def fitted(self, scored: ScoredItems) -> "Benchmark":
        """This benchmark with what it chooses by all of one model's outcomes, for `credit`."""
        return self

    @abstractmethod
    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        """The figures of one model."""

    @abstractmethod
    def statement(self, ties: TiePolicy) -> dict[str, str]:
        """The protocol in words: unit, correct, tie, aggregation, failures."""

    def pooled(
        self,
        scored: ScoredItems,
        key: Callable[[BenchmarkItem], str],
        groups: Callable[[str], Iterable[str]],
        complete: Callable[[dict[str, Floats]], dict[str, Floats]],
    ) -> BenchmarkFigures:
        """Aggregates of the items' credits. `key`: an item's stratum; `groups`: the aggregates that pool it;
        `complete`: what is reported of their means."""

        def credit(item: BenchmarkItem, scores: Sequence[float]) -> list[float]:
            return [self.credit(item, Outcome(tuple(scores)), scored.ties)]

        strata = scored.strata(scored.grouped(key), ("accuracy",), credit)
        shares: dict[str, list[tuple[str, str]]] = {}
        for stratum in strata:
            for group in groups(stratum.name):
                shares.setdefault(group, []).append((stratum.name, "accuracy"))
        sizes = sizes_of(strata)
        return BenchmarkFigures(
            strata,
            lambda means: complete(pooled(means, shares, sizes)),
            shares=shares,
            sizes=pooled_sizes(shares, sizes),
            counts={"ties": scored.tied_pairs()},
        )

    def check(self, items: Sequence[BenchmarkItem]) -> None:
        """Raises BadInputError where the items do not fit together."""
        if not items:
            raise BadInputError(f"there is no item of {self.title} in what was read")


def cluster_of(item: BenchmarkItem) -> str:
    """The hash of the item's prompt, by which items are resampled."""
    text = RECORD.join(f"{turn.role}{FIELD}{turn.content}" for turn in item.prompt)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def win(better: float, worse: float, ties: TiePolicy) -> float:
    """1 where the better response has the higher score, strictly; a tie is 0, or 1/2 with the policy "half"."""
    return 1.0 if better > worse else 0.5 if ties == "half" and better == worse else 0.0


def grouped(members: Iterable[ScoredItem], key: Callable[[BenchmarkItem], str]) -> dict[str, list[ScoredItem]]:
    """Items with their outcomes by key, keys and items in the order they come."""
    out: dict[str, list[ScoredItem]] = {}
    for item, outcome in members:
        out.setdefault(key(item), []).append((item, outcome))
    return out
