"""Which container and which layout a source has: said by the caller, or recognised from its first rows.

Covers: `open_source`, the one way from a path or `hf:NAME` to an iterator of batches. Leaves out: the layouts
(`layouts`), the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from assay.data.json_lines import RowError
from assay.errors import AssayError, BadInputError
from assay_pipelines.importers.containers import Container, Csv, HubDataset, Parquet, Record, json_container
from assay_pipelines.importers.joining import Join, joined
from assay_pipelines.importers.layouts import BY_NAME, FAMILIES, MAPPABLE, NAMES, Layout, named, recognise
from assay_pipelines.importers.rows import BatchBuilder, ReadBatch, Row
from assay_pipelines.importers.trl import TARGETS

#: Containers may be named where the file's ending does not tell; what the rows mean is then recognised.
CONTAINERS = ("jsonl", "json", "csv", "parquet", "hf")
FORMATS: tuple[str, ...] = ("auto", *CONTAINERS, *NAMES)
PEEK = 100
SUFFIXES = frozenset({".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".gz", ".zst"})


@dataclass(frozen=True)
class ImportConfig:
    """What to read and how. `mapping`: our column -> the source's column. `limit`: rows to read."""

    path: str
    format: str = "auto"
    mapping: dict[str, str] = field(default_factory=dict)
    source: str | None = None
    limit: int | None = None
    split: str = "train"
    subset: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise BadInputError(f"unknown format {self.format!r}; one of {', '.join(FORMATS)}", field="format")
        if unknown := sorted(set(self.mapping) - TARGETS):
            raise BadInputError(f"cannot map to {unknown[0]!r}; columns are {', '.join(sorted(TARGETS))}", field="map")
        if self.mapping and self.format in NAMES and not MAPPABLE & set(FAMILIES.get(self.format, (self.format,))):
            raise BadInputError(f"format {self.format} has fixed columns: drop --map or choose another", field="map")
        if self.limit is not None and self.limit < 1:
            raise BadInputError("must be at least 1", field="limit")


@dataclass(frozen=True)
class Source:
    """An opened source: what was recognised, and its batches. `layout` names one of `layouts.LAYOUTS`."""

    config: ImportConfig
    container: Container
    layout: str
    spill: Path
    title: str

    @property
    def named(self) -> bool:
        """Whether the caller said what the rows are."""
        return self.config.format in NAMES

    @property
    def recognised(self) -> str:
        return f"{self.title} in {self.container.description}"

    @property
    def name(self) -> str:
        """The source's name in the store, for rows that bring none."""
        return self.config.source or BY_NAME[self.layout].source or _stem(self.container.name)

    def batches(self) -> Iterator[ReadBatch]:
        """Pairs, statements and rejects in bounded batches, in the order of the file."""
        builder = BatchBuilder(self.name, Path(self.container.name).name)
        records = islice(self.container.records(), self.config.limit)
        meaning = BY_NAME[self.layout].meaning
        rows = self._joined(builder, records, meaning) if isinstance(meaning, Join) else self.parsed(builder, records)
        try:
            for _ in rows:
                if builder.full:
                    yield builder.take()
        except AssayError:  # the container is damaged from here on; what was read is kept
            if not builder.empty:
                yield builder.take()
            raise
        if not builder.empty:
            yield builder.take()

    def parsed(self, builder: BatchBuilder, records: Iterator[Record]) -> Iterator[None]:
        """Put what each row says, or its reject, into the builder."""
        parse = BY_NAME[self.layout].meaning
        assert not isinstance(parse, Join)
        for row, record, raw in records:
            renamed = record
            try:
                if isinstance(renamed, RowError):
                    raise renamed
                renamed = self._rename(renamed)
                for item in parse(renamed):
                    if isinstance(item, RowError):
                        builder.reject(row, item, item.detail)
                    else:
                        self._add(builder, row, item)
            except RowError as error:
                builder.reject(row, error, _raw(record, raw))
            builder.row_done()
            yield

    def _joined(self, builder: BatchBuilder, records: Iterator[Record], join: Join) -> Iterator[None]:
        def counted() -> Iterator[Record]:
            for row, record, raw in records:
                builder.row_done()
                yield row, record if isinstance(record, RowError) else self._rename(record), raw

        for row, pair in joined(counted(), join, self.container, self.spill):
            if isinstance(pair, RowError):
                builder.reject(row, pair, None)
            else:
                self._add(builder, row, pair)
            yield

    def _add(self, builder: BatchBuilder, row: int, item: Row) -> None:
        if self.config.source is not None:
            item.source = self.config.source
        builder.add(row, item)

    def _rename(self, record: dict[str, Any]) -> dict[str, Any]:
        return renamed(record, self.config.mapping)


def open_source(config: ImportConfig, *, spill: Path) -> Source:
    """Open a source and settle its layout. Raises BadInputError for an empty file, a column that is not there, or
    rows that look like nothing known.
    """
    container = _container(config)
    _check_columns(config, container)
    sample = list(islice(container.records(), PEEK))
    if not sample:
        raise BadInputError("the file is empty: no rows", file=config.path)
    good = [renamed(record, config.mapping) for _, record, _ in sample if not isinstance(record, RowError)]
    if not good:
        row, first = sample[0][0], sample[0][1]
        reason = first.reason if isinstance(first, RowError) else "not readable"
        raise BadInputError(f"none of the first {len(sample)} rows can be read: {reason}", file=config.path, row=row)
    for target, column in config.mapping.items():
        if not any(target in record for record in good):
            raise BadInputError(f"no such column; there are {_names(sample)}", file=config.path, field=column)
    layout = _layout(config, good)
    return Source(config, container, layout.name, spill, layout.describe(good))


def renamed(record: dict[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """The record with mapped columns under our names; other columns keep theirs unless that name is taken."""
    if not mapping:
        return record
    mapped_columns = set(mapping.values())
    out = {name: value for name, value in record.items() if name not in mapped_columns and name not in mapping}
    out.update({target: record[column] for target, column in mapping.items() if column in record})
    return out


def _container(config: ImportConfig) -> Container:
    if config.path.startswith("hf:") or config.format == "hf":
        return HubDataset(config.path.removeprefix("hf:"), subset=config.subset, split=config.split)
    path = Path(config.path).expanduser()
    if path.is_dir():
        raise BadInputError("is a folder; name a file, or hf:FOLDER for a saved data set", file=config.path)
    if config.format == "csv" or {".csv", ".tsv"} & set(path.suffixes):
        return Csv(path)
    if config.format == "parquet" or path.suffix == ".parquet":
        return Parquet(path)
    return json_container(path)


def _layout(config: ImportConfig, records: list[dict[str, Any]]) -> Layout:
    try:
        if config.format in NAMES:
            return named(config.format, records)
        layout = recognise(records, mapped=bool(config.mapping))
    except BadInputError as error:
        raise BadInputError(str(error), file=config.path) from error
    if layout is not None:
        return layout
    columns = ", ".join(sorted({name for record in records for name in record})[:20])
    raise BadInputError(
        f"cannot tell what the columns mean ({columns}); name them: --map prompt=... --map chosen=... "
        "--map rejected=... (or response_a, response_b, label)",
        file=config.path,
    )


def _check_columns(config: ImportConfig, container: Container) -> None:
    columns = container.columns()
    if columns is None:
        return
    for column in config.mapping.values():
        if column not in columns:
            raise BadInputError(f"no such column; there are {', '.join(columns)}", file=config.path, field=column)


def _names(sample: list[Record]) -> str:
    return ", ".join(sorted({name for _, record, _ in sample if isinstance(record, dict) for name in record})[:20])


def _raw(record: dict[str, Any] | RowError, raw: bytes | None) -> str | None:
    if raw is not None:
        return raw[:4000].decode("utf-8", "backslashreplace")
    return repr(record) if isinstance(record, dict) else None


def _stem(name: str) -> str:
    path = Path(name)
    while path.suffix in SUFFIXES:
        path = path.with_suffix("")
    return path.name if path.is_absolute() or "." in name else name
