"""Recorded scores and decisions from files, matched to benchmark items by id.

Covers: JSON Lines, JSON arrays and Parquet of rows `{"id": ..., "scores": [one a response]}`, the files that `assay
score` and `assay eval --out` write, judges' decisions. Leaves out: the protocols.

A score that is null, NaN or infinite makes its item a counted failure, as does an item without a row; a row without an
item, a second row for an item, a wrong number of scores, and values that are not numbers are errors.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import Benchmark
from assay_rm_training.benchmarks.item import LABELS, BenchmarkItem, Outcome, Record, flipped, publisher_id
from assay_rm_training.benchmarks.records import read_file

MISSING = "missing"
TIES = frozenset({"A=B", "B=A", "A~B", "tie"})


@dataclass(frozen=True)
class RecordedScores:
    """`outcomes`: one per item, in order. `in_order`: items matched only by the order of equal ids."""

    outcomes: tuple[Outcome, ...]
    rows: int
    in_order: int


def read_recorded(path: Path, benchmark: Benchmark, items: Sequence[BenchmarkItem]) -> RecordedScores:
    """Raises BadInputError naming file, row and field, also where not one item has a row."""
    path = path.expanduser()
    if not path.is_file():
        raise BadInputError("no such file", file=path)
    book = _RowMatcher(items)
    rows = 0
    for record in read_file(path, constants=True):
        rows += 1
        book.take(record, ("key", "id", *benchmark.id_fields))
    matched, in_order = book.settle()
    if not matched:
        raise BadInputError(f"has no row for any of the {len(items)} items", file=path)
    outcomes = [
        _outcome(matched[item.key], item, benchmark) if item.key in matched else Outcome(failure=MISSING)
        for item in items
    ]
    games = Counter(len(outcome.decisions) for outcome in outcomes if outcome.decisions is not None)
    kinds = {("decisions" if o.decisions is not None else "scores") for o in outcomes if o.failure is None}
    if len(games) > 1 or len(kinds) > 1:
        raise BadInputError("some items have other numbers of games than others, or scores beside decisions", file=path)
    return RecordedScores(tuple(outcomes), rows, in_order)


class _RowMatcher:
    def __init__(self, items: Sequence[BenchmarkItem]) -> None:
        self.by_key = {item.key: item for item in items}
        self.by_id: dict[str, list[BenchmarkItem]] = defaultdict(list)
        for item in items:
            self.by_id[item.id].append(item)
        self.found: dict[str, Record] = {}
        self.unsettled: dict[str, list[Record]] = defaultdict(list)

    def take(self, record: Record, names: Sequence[str]) -> None:
        row_id = next((value for name in names if (value := publisher_id(record.values.get(name))) is not None), None)
        if row_id is None:
            raise record.error("missing, or neither a text nor a whole number", "id")
        if row_id in self.by_key:
            self._settle(record, self.by_key[row_id])
            return
        candidates = self.by_id.get(row_id) or self._in_part(row_id)
        if not candidates:
            raise record.error(f"{row_id!r} is the id of no item of the benchmark", "id")
        if len(candidates) > 1:
            parts = {str(record.values.get(name)) for name in ("domain", "part", "subset", "set", "file")} - {"None"}
            candidates = [item for item in candidates if {item.part, item.subset} & parts] or candidates
        if len(candidates) > 1:
            self.unsettled[row_id].append(record)
        else:
            self._settle(record, candidates[0])

    def _in_part(self, part_name: str) -> list[BenchmarkItem]:
        """The items that PART/ID names, where PART is their domain or subset."""
        part, _, id_ = part_name.partition("/")
        return [item for item in self.by_id.get(id_, []) if part in (item.part, item.subset)]

    def settle(self) -> tuple[dict[str, Record], int]:
        """Assign rows of an ambiguous id to its items in order, if their numbers are equal."""
        in_order = 0
        for id_, records in self.unsettled.items():
            open_ = [item for item in self.by_id[id_] if item.key not in self.found]
            if len(open_) != len(records):
                keys = ", ".join(item.key for item in open_[:3])
                raise records[0].error(
                    f"{id_!r} is the id of {len(open_)} items, and {len(records)} rows have it: "
                    f"name them as {keys}, or add a field domain or subset",
                    "id",
                )
            in_order += len(records)
            self.found.update({item.key: record for item, record in zip(open_, records, strict=True)})
        return self.found, in_order

    def _settle(self, record: Record, item: BenchmarkItem) -> None:
        if (before := self.found.get(item.key)) is not None:
            raise record.error(f"{item.key!r} has scores already, in row {before.row}", "id")
        self.found[item.key] = record


def _outcome(record: Record, item: BenchmarkItem, benchmark: Benchmark) -> Outcome:
    values = record.values
    if benchmark.takes_decisions and (values.get("decisions") is not None or values.get("judgments") is not None):
        return Outcome(decisions=_decisions(record))
    field = next((name for name in ("scores", "score_chosen", "scores_chosen") if name in values), None)
    if field is None:
        if benchmark.takes_decisions and ("decisions" in values or "judgments" in values):
            return Outcome(failure="null")
        if (error := values.get("error") or values.get("failure")) is not None:
            return Outcome(failure=_code(error))
        raise record.error("missing" + (" (and no decisions)" if benchmark.takes_decisions else ""), "scores")
    if field == "scores":
        raw_scores = values["scores"]
        if raw_scores is None:
            return Outcome(failure=_code(values.get("error") or values.get("failure") or "null"))
        if not isinstance(raw_scores, list | tuple):
            raise record.error(f"not a list of scores: {raw_scores!r:.60}", "scores")
        parts = list(raw_scores)
    else:
        chosen, rejected = _many(values[field]), _many(values.get(field.replace("chosen", "rejected")))
        parts = _in_order(chosen, rejected, item) or [*chosen, *rejected]
    if len(parts) != len(item.responses):
        raise record.error(f"{len(parts)} scores for the {len(item.responses)} responses of item {item.key!r}", field)
    numbers = [_number(record, field, part) for part in parts]
    codes = [number for number in numbers if isinstance(number, str)]
    if codes:
        return Outcome(failure=codes[0], truncated=bool(values.get("truncated")))
    scores = tuple(number for number in numbers if not isinstance(number, str))
    truncated = bool(values.get("truncated")) or any(isinstance(p, dict) and p.get("truncated") for p in parts)
    return Outcome(scores=scores, truncated=truncated)


def _number(record: Record, field: str, value: Any) -> float | str:
    """The score, or a failure code."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, Mapping):  # as `assay score` writes it
        if value.get("reward") is None:
            return _code(value.get("error") or "null")
        value = value["reward"]
    if value is None:
        return "null"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise record.error(f"not a number: {value!r:.60}", field)
    try:
        number = float(value)
    except OverflowError:
        return "non_finite"
    return number if math.isfinite(number) else "non_finite"


def _decisions(record: Record) -> tuple[str | None, ...]:
    """Decisions in the item's A and B. The official result files' `judgments` are in the judge's order: the second is
    flipped."""
    field = "decisions" if record.values.get("decisions") is not None else "judgments"
    games = record.values[field]
    if not isinstance(games, list | tuple) or len(games) not in (1, 2):
        raise record.error("not a list of one or two games", field)
    out = []
    for position, game in enumerate(games):
        decision = game.get("decision") if isinstance(game, Mapping) else game
        if decision is not None and not isinstance(decision, str):
            raise record.error(f"neither a text nor null: {decision!r:.60}", field)
        plain = decision.replace(" ", "") if decision else None
        if field == "decisions" and plain is not None and plain not in (*LABELS, *TIES):
            raise record.error(f"{decision!r:.60} is none of A>B, B>A, A=B and null", field)
        out.append(flipped(plain) if field == "judgments" and position else plain)
    return tuple(out)


def _code(error: Any) -> str:
    if isinstance(error, Mapping):
        return str(error.get("code") or "error")
    return str(error)


def _in_order(chosen: Sequence[Any], rejected: Sequence[Any], item: BenchmarkItem) -> list[Any]:
    """Scores of the right and of the wrong responses in the item's order; empty where their numbers differ from the
    item's."""
    right = [grade == max(item.gold) for grade in item.gold]
    if (right.count(True), right.count(False)) != (len(chosen), len(rejected)):
        return []
    takes = {True: iter(chosen), False: iter(rejected)}
    return [next(takes[is_right]) for is_right in right]


def _many(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
