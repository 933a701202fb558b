"""Layouts made of adapters: what an `AdapterSpec` says, done to records.

Leaves out: the keys of an adapter (`schema`), its rules (`pairs`, `rankings`, `statements`), finding its file
(`loading`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import ClassVar

from assay.data.conversation import PART_COLUMNS, row_turns
from assay.data.json_lines import RowError
from assay_pipelines.importers.adapters.pairs import Reader, Rows, pair_reader
from assay_pipelines.importers.adapters.paths import columns_of, field_of, getter
from assay_pipelines.importers.adapters.prompts import prompt_reader
from assay_pipelines.importers.adapters.rankings import ranking_reader
from assay_pipelines.importers.adapters.schema import AdapterSpec, record_paths
from assay_pipelines.importers.adapters.statements import feedback_reader, principle_reader, rating_reader, rating_value
from assay_pipelines.importers.formats.columns import leftover_meta, list_of, rejecting, text_or_none
from assay_pipelines.importers.layout import NOTHING, JoinedLayout, JsonRecord, RecordLayout
from assay_pipelines.importers.rows import PairRow, RatedCompletion, RatedRow


class AdapterLayout(RecordLayout):
    """Base class of layouts that `loading` makes of adapters, one class for each."""

    spec: ClassVar[AdapterSpec]

    def __init__(self) -> None:
        spec = self.spec
        self.title, self.source, self.note, self.mappable = spec.title, spec.source, spec.note, spec.mappable
        self._required = [(path, getter(path)) for path in spec.requires]
        self._columns = frozenset(name for path in spec.requires for name in columns_of(path))
        self._condition = getter(spec.matches) if spec.matches else None
        self._rejects = [(getter(rule.when), rule) for rule in spec.reject]
        self._prompt = prompt_reader(spec.prompt) if spec.prompt is not None else None
        self._readers = list(self._make_readers())
        self._origin = {
            name: getter(path)
            for name, path in (
                ("record_id", spec.id),
                ("source", spec.row_source),
                ("category", spec.category),
                ("language", spec.language),
                ("license", spec.row_license),
            )
            if path is not None
        }
        said_in = spec.feedback[0].text if spec.feedback else spec.pairs[0].first if spec.pairs else spec.requires[0]
        self._said_in = field_of(said_in)
        self._each = getter(spec.each) if spec.each else None
        used = {name for path in record_paths(spec) for name in columns_of(path)}
        self._parts, self._used = PART_COLUMNS - used, frozenset(used | PART_COLUMNS)

    def matches(self, record: JsonRecord) -> bool:
        if self.spec.exactly and record.keys() != self._columns:
            return False
        if not all(path in record or get(record) is not None for path, get in self._required):
            return False
        with suppress(RowError):
            return self._condition is None or bool(self._condition(record))
        return False

    def parse(self, record: JsonRecord) -> Rows:
        rows: Rows = []
        for number, entry in enumerate(self._records(record)):
            with rejecting(rows, f"{self.spec.each} {number}") if self._each else nullcontext():
                rows += self._rows(entry, record)
        if not rows:
            raise RowError(NOTHING, field=self._said_in)
        return rows

    def _records(self, record: JsonRecord) -> Sequence[JsonRecord]:
        """The records that one of the file holds. Raises RowError for one that the adapter rejects."""
        if self.spec.json_columns:
            record = {**record, **{name: _from_json(record.get(name), name) for name in self.spec.json_columns}}
        self.require_acceptable(record)
        if self._each is None:
            return [record]
        entries = list_of(self._each(record), field_of(self.spec.each or ""))
        return [{**record, **entry} if isinstance(entry, dict) else {} for entry in entries]

    def _rows(self, record: JsonRecord, whole: JsonRecord) -> Rows:
        turns = self._prompt(record) if self._prompt else None
        rows = [row for read in self._readers for row in read(record, turns)]
        origin = [(name, value) for name, value in self.origin_of(record).items() if value is not None]
        meta = leftover_meta(whole, self._used) if self.spec.meta else {}
        typed = not record.keys().isdisjoint(self._parts)
        for row in rows:
            if isinstance(row, RowError):
                continue
            if typed:
                sides = (row.first, row.second) if isinstance(row, PairRow) else (row.response,)
                row.turns = row_turns(record, row.turns, *sides)
            for name, value in origin:
                setattr(row, name, value)
            if meta and isinstance(row, PairRow | RatedRow):
                row.meta = {**meta, **row.meta}
        return rows

    def require_acceptable(self, record: JsonRecord) -> None:
        """Raises RowError for a record that the adapter rejects."""
        for holds, rule in self._rejects:
            if holds(record):
                raise RowError(rule.reason, field=rule.field)

    def origin_of(self, record: JsonRecord) -> dict[str, str | None]:
        origin = {name: text_or_none(get(record), name) for name, get in self._origin.items()}
        return {**origin, "license": self.spec.license} if self.spec.license else origin

    def _make_readers(self) -> Iterator[Reader]:
        spec = self.spec
        yield from (pair_reader(rule) for rule in spec.pairs)
        if spec.ranking is not None:
            yield ranking_reader(spec.ranking)
        if spec.rating is not None:
            yield rating_reader(spec.rating)
        yield from (feedback_reader(rule) for rule in spec.feedback)
        if spec.principle is not None:
            yield principle_reader(spec.principle)


class JoinedAdapterLayout(AdapterLayout, JoinedLayout):
    """Base class of layouts of adapters whose ratings make pairs of the rows of a prompt."""

    def __init__(self) -> None:
        super().__init__()
        rule = self.spec.rating
        assert rule is not None
        assert rule.pairs_by is not None
        rated_by = rule.aspects[rule.pairs_by]
        self._value = getter(rated_by)
        self.completion_field, self.label_field = field_of(rule.response), field_of(rated_by)
        self._span = rule.high - rule.low if rule.low is not None and rule.high is not None else None
        self._binary = self._span == 1 or rule.values is not None

    def completions(self, record: JsonRecord) -> list[RatedCompletion]:
        return self.read(record)[1]

    def read(self, record: JsonRecord) -> tuple[Rows, list[RatedCompletion]]:
        """No completion of a record whose rating cannot be read, of which its rows say why."""
        assert self.spec.rating is not None
        rows = self.parse(record)
        rated = next((row for row in rows if isinstance(row, RatedRow)), None)
        if rated is None:
            return rows, []
        try:
            value = rating_value(self._value(record), self.spec.rating, self.label_field)
        except RowError:
            return rows, []
        span = None if self._binary else self._span
        about = (rated.source, rated.record_id, rated.category, rated.license, rated.language)
        return rows, [RatedCompletion(rated.turns, "", rated.response, value, span, *about)]


def _from_json(value: object, field: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowError("not JSON", field=field) from error


def layout_class(spec: AdapterSpec, name: str, module: str) -> type[AdapterLayout]:
    """The layout class of an adapter, as the attribute `name` of `module`."""
    joined = spec.rating is not None and spec.rating.pairs_by is not None
    base: type[AdapterLayout] = JoinedAdapterLayout if joined else AdapterLayout
    return type(name, (base,), {"spec": spec, "__doc__": f"{spec.title}.", "__module__": module})
