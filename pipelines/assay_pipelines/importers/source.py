"""An opened source, from a path or `hf:NAME`: its container and its layout, given or recognised from the first rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from assay.data.json_lines import RowError
from assay.errors import AssayError, BadInputError
from assay_pipelines.importers.containers.container import Container, Record, content_bytes
from assay_pipelines.importers.containers.csv_file import Csv
from assay_pipelines.importers.containers.hub import HubDataset
from assay_pipelines.importers.containers.json_files import json_container
from assay_pipelines.importers.containers.parquet_file import Parquet
from assay_pipelines.importers.formats.hh import looks_like_red_team
from assay_pipelines.importers.formats.trl import TARGETS
from assay_pipelines.importers.joining import joined
from assay_pipelines.importers.layout import JoinedLayout, RecordLayout
from assay_pipelines.importers.recognition import members_of, recognise, select_layout
from assay_pipelines.importers.rows import BatchBuilder, ReadBatch, Row

#: Formats that name a container only, for files whose ending does not; the layout is then recognised.
CONTAINERS = ("auto", "jsonl", "json", "csv", "parquet", "hf")
#: The first rows show the layout: so many, or three, and then as many as have so many bytes.
PEEK_ROWS, PEEK_BYTES = 100, 8 * 2**20
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
        layouts = [] if self.format in CONTAINERS else members_of(self.format)
        if unknown := sorted(set(self.mapping) - TARGETS):
            raise BadInputError(f"cannot map to {unknown[0]!r}; columns are {', '.join(sorted(TARGETS))}", field="map")
        if self.mapping and layouts and not any(layout.mappable for layout in layouts):
            raise BadInputError(f"format {self.format} has fixed columns: drop --map or choose another", field="map")
        if self.limit is not None and self.limit < 1:
            raise BadInputError("must be at least 1", field="limit")


@dataclass(frozen=True)
class ImportSource:
    """An opened source: its container, its layout and its batches. `title` describes the layout."""

    config: ImportConfig
    container: Container
    layout: RecordLayout
    spill: Path
    title: str

    @property
    def layout_given(self) -> bool:
        """Whether the caller named the layout."""
        return self.config.format not in CONTAINERS

    @property
    def recognised(self) -> str:
        return f"{self.title} in {self.container.description}"

    @property
    def name(self) -> str:
        """The source's name in the store, for rows that name none."""
        return self.config.source or self.layout.source or _stem(self.container.name)

    def batches(self) -> Iterator[ReadBatch]:
        """Pairs, statements and rejects in bounded batches, in the order of the file."""
        builder = BatchBuilder(self.name, Path(self.container.name).name)
        records = islice(self.container.records(), self.config.limit)
        if isinstance(self.layout, JoinedLayout):
            rows = self._joined(builder, records, self.layout)
        else:
            rows = self._parsed(builder, records)
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

    def _parsed(self, builder: BatchBuilder, records: Iterator[Record]) -> Iterator[None]:
        """Add each record's rows, or its reject, to the builder."""
        parse = self.layout.parse
        for row, record, raw in records:
            try:
                if isinstance(record, RowError):
                    raise record
                for entry in parse(self._rename(record)):
                    if isinstance(entry, RowError):
                        builder.reject(row, entry, entry.detail)
                    else:
                        self._add(builder, row, entry)
            except RowError as error:
                builder.reject(row, error, _raw(record, raw))
            builder.row_done()
            yield

    def _joined(self, builder: BatchBuilder, records: Iterator[Record], layout: JoinedLayout) -> Iterator[None]:
        def counted() -> Iterator[Record]:
            for row, record, raw in records:
                builder.row_done()
                yield row, record if isinstance(record, RowError) else self._rename(record), raw

        for row, pair in joined(counted(), layout, self.container, self.spill):
            if isinstance(pair, RowError):
                builder.reject(row, pair, None)
            else:
                self._add(builder, row, pair)
            yield

    def _add(self, builder: BatchBuilder, row: int, entry: Row) -> None:
        if self.config.source is not None:
            entry.source = self.config.source
        builder.add(row, entry)

    def _rename(self, record: dict[str, Any]) -> dict[str, Any]:
        return renamed(record, self.config.mapping)


def open_source(config: ImportConfig, *, spill: Path) -> ImportSource:
    """Open a source and choose its layout. Raises BadInputError for an empty file, a missing column, or rows of no
    known layout.
    """
    container = _container(config)
    _check_columns(config, container)
    sample = _sample(container)
    if not sample:
        raise BadInputError("the file is empty: no rows", file=config.path)
    good = [renamed(record, config.mapping) for _, record in sample if not isinstance(record, RowError)]
    if not good:
        row, first = sample[0][0], sample[0][1]
        reason = first.reason if isinstance(first, RowError) else "not readable"
        raise BadInputError(f"none of the first {len(sample)} rows can be read: {reason}", file=config.path, row=row)
    for target, column in config.mapping.items():
        if not any(target in record for record in good):
            raise BadInputError(f"no such column; there are {_names(sample)}", file=config.path, field=column)
    layout = _layout(config, good)
    return ImportSource(config, container, layout, spill, layout.describe(good))


def renamed(record: dict[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """The record with mapped columns under our names; other columns keep theirs unless that name is taken."""
    if not mapping:
        return record
    mapped_columns = set(mapping.values())
    out = {name: cell for name, cell in record.items() if name not in mapped_columns and name not in mapping}
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


def _layout(config: ImportConfig, records: list[dict[str, Any]]) -> RecordLayout:
    try:
        if config.format not in CONTAINERS:
            return select_layout(config.format, records)
        if not config.mapping and 2 * sum(map(looks_like_red_team, records)) > len(records):
            raise BadInputError(
                "HH-RLHF's red-team set holds one rated transcript a row and no second response to compare it with; "
                "its preference pairs are in the folders harmless-base and helpful-*"
            )
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


def _sample(container: Container) -> list[tuple[int, dict[str, Any] | RowError]]:
    sample: list[tuple[int, dict[str, Any] | RowError]] = []
    size = 0
    try:
        for row, record, _ in container.records():
            sample.append((row, record))
            size += content_bytes(record)
            if len(sample) == PEEK_ROWS or (len(sample) >= 3 and size > PEEK_BYTES):
                break
    except AssayError:  # the container is damaged: what comes before is to be imported
        if not any(isinstance(record, dict) for _, record in sample):
            raise
    return sample


def _names(sample: list[tuple[int, dict[str, Any] | RowError]]) -> str:
    return ", ".join(sorted({name for _, record in sample if isinstance(record, dict) for name in record})[:20])


def _raw(record: dict[str, Any] | RowError, raw: bytes | None) -> str | None:
    if raw is not None:
        return raw[:4000].decode("utf-8", "backslashreplace")
    return repr(record) if isinstance(record, dict) else None


def _stem(name: str) -> str:
    path = Path(name)
    while path.suffix in SUFFIXES:
        path = path.with_suffix("")
    return path.name if path.is_absolute() or "." in name else name
