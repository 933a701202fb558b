"""An opened source, from a path or `hf:NAME`: its container and its layout, given or recognised from the first rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from assay.data.json_lines import RowError
from assay.errors import AssayError, BadInputError
from assay.store.media import MediaFolder
from assay_pipelines.importers.containers.arrow_batches import ArrowFile
from assay_pipelines.importers.containers.container import Container, Record, content_bytes
from assay_pipelines.importers.containers.csv_file import Csv
from assay_pipelines.importers.containers.folder import open_folder
from assay_pipelines.importers.containers.hub import HubDataset
from assay_pipelines.importers.containers.json_files import json_container
from assay_pipelines.importers.containers.parquet_file import Parquet
from assay_pipelines.importers.images import ImageFetcher, RowImages
from assay_pipelines.importers.joining import grouped, joined
from assay_pipelines.importers.layout import NOTHING, GroupedLayout, JoinedLayout, RecordLayout
from assay_pipelines.importers.mapping import ColumnMapping
from assay_pipelines.importers.recognition import members_of, recognise, select_layout
from assay_pipelines.importers.rows import BatchBuilder, ReadBatch, Row

#: Formats that name a container only, for files whose ending does not; the layout is then recognised.
CONTAINERS = ("auto", "jsonl", "json", "csv", "parquet", "arrow", "hf")
#: The first rows show the layout: so many, or three, and then as many as have so many bytes.
PEEK_ROWS, PEEK_BYTES = 100, 8 * 2**20
SAMPLE_ROWS = 1000  #: the first rows, which show how many can be read; with as many bytes at most

#: 1-based rows with their records or errors.
Sample: TypeAlias = list[tuple[int, "dict[str, Any] | RowError"]]
SUFFIXES = frozenset(
    {".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".gz", ".zst", ".xz"}
)


@dataclass(frozen=True)
class ImportConfig:
    """What to read and how. `mapping`: our column -> the source's column or path. `values`: codes of `label` -> labels.

    `limit`: rows to read. `split`: of a data set, a folder or a JSON object of several; None: train. `encoding`: of a
    CSV file; None: detected. `fetch_images`: get the images whose addresses are of the web; `fetch_from`: hosts whose
    addresses need not be public for that.
    """

    path: str
    format: str = "auto"
    mapping: dict[str, str] = field(default_factory=dict)
    source: str | None = None
    limit: int | None = None
    split: str | None = None
    subset: str | None = None
    encoding: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    fetch_images: bool = False
    fetch_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        layouts = [] if self.format in CONTAINERS else members_of(self.format)
        if self.columns and layouts and not any(layout.mappable for layout in layouts):
            raise BadInputError(f"format {self.format} has fixed columns: drop --map or choose another", field="map")
        if self.limit is not None and self.limit < 1:
            raise BadInputError("must be at least 1", field="limit")

    @cached_property
    def columns(self) -> ColumnMapping:
        """`mapping` and `values`, checked."""
        return ColumnMapping(self.mapping, self.values)


@dataclass(frozen=True)
class ImportSource:
    """An opened source: its container, its layout and its batches. `title` describes the layout."""

    config: ImportConfig
    container: Container
    layout: RecordLayout
    spill: Path
    title: str
    sample: Sample  #: the first rows, as they stand in the container
    images: RowImages

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
        builder = BatchBuilder(self.name, Path(self.container.name).name, self.images)
        records = islice(self.container.records(), self.config.limit)
        if isinstance(self.layout, JoinedLayout | GroupedLayout):
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
                entries = parse(self._rename(record))
                if not entries:
                    raise RowError(NOTHING)
                for entry in entries:
                    if isinstance(entry, RowError):
                        builder.reject(row, entry, entry.detail)
                    else:
                        self._add(builder, row, entry)
            except RowError as error:
                builder.reject(row, error, _raw(record, raw))
            builder.row_done()
            yield

    def _joined(
        self, builder: BatchBuilder, records: Iterator[Record], layout: JoinedLayout | GroupedLayout
    ) -> Iterator[None]:
        def counted() -> Iterator[Record]:
            for row, record, raw in records:
                builder.row_done()
                yield row, record if isinstance(record, RowError) else self._rename(record), raw

        if isinstance(layout, GroupedLayout):
            rows = grouped(counted(), layout, self.spill)
        else:
            rows = joined(counted(), layout, self.container, self.spill)
        for row, pair in rows:
            if isinstance(pair, RowError):
                builder.reject(row, pair, None)
            else:
                self._add(builder, row, pair)
            yield

    def _add(self, builder: BatchBuilder, row: int, entry: Row) -> None:
        if self.config.source is not None:
            entry.source = self.config.source
        try:
            builder.add(row, entry)
        except RowError as error:  # an image of it cannot be read
            builder.reject(row, error, error.detail)

    def _rename(self, record: dict[str, Any]) -> dict[str, Any]:
        return self.config.columns(record)


class UnknownLayoutError(BadInputError):
    """Rows can be read, and nothing says what their columns mean."""


def open_source(config: ImportConfig, *, spill: Path, media: MediaFolder) -> ImportSource:
    """Open a source and choose its layout. Raises BadInputError for an empty file, a missing column, or rows of no
    known layout.
    """
    return with_layout(config, *open_sample(config), spill=spill, media=media)


def open_sample(config: ImportConfig) -> tuple[Container, Sample]:
    """The container and its first rows. Raises BadInputError for an empty file or a missing column."""
    container = _container(config)
    if (columns := container.columns()) is not None:
        config.columns.require_columns(columns, config.path)
    sample = _sample(container)
    if not sample:
        raise BadInputError("the file is empty: no rows", file=config.path)
    return container, sample


def with_layout(
    config: ImportConfig, container: Container, sample: Sample, *, spill: Path, media: MediaFolder
) -> ImportSource:
    """The source with the layout of its rows. Raises BadInputError for a missing column, UnknownLayoutError."""
    good = [config.columns(record) for _, record in sample[:PEEK_ROWS] if not isinstance(record, RowError)]
    if not good:
        row, first = sample[0][0], sample[0][1]
        reason = first.reason if isinstance(first, RowError) else "not readable"
        raise BadInputError(f"none of the first {len(sample)} rows can be read: {reason}", file=config.path, row=row)
    for target, column in config.mapping.items():
        if not any(target in record for record in good):
            raise BadInputError(f"no such column; there are {_names(sample)}", file=config.path, field=column)
    layout = _layout(config, good)
    path = Path(config.path).expanduser()
    fetch = ImageFetcher(config.fetch_from) if config.fetch_images or config.fetch_from else None
    images = RowImages(media, path.parent if path.is_file() else None, fetch)
    return ImportSource(config, container, layout, spill, layout.describe(good), sample, images)


def _container(config: ImportConfig) -> Container:
    if config.path.startswith("hf:") or config.format == "hf":
        return HubDataset(config.path.removeprefix("hf:"), subset=config.subset, split=config.split or "train")
    path = Path(config.path).expanduser()
    if path.is_dir():
        return open_folder(path, config.split, lambda file: _file(file, config))
    return _file(path, config)


def _file(path: Path, config: ImportConfig) -> Container:
    if config.format == "csv" or {".csv", ".tsv"} & set(path.suffixes):
        return Csv(path, encoding=config.encoding)
    if config.format == "parquet" or path.suffix == ".parquet":
        return Parquet(path)
    if config.format == "arrow" or path.suffix in (".arrow", ".feather"):
        return ArrowFile(path)
    return json_container(path, config.split)


def _layout(config: ImportConfig, records: list[dict[str, Any]]) -> RecordLayout:
    try:
        if config.format not in CONTAINERS:
            return select_layout(config.format, records)
        layout = recognise(records, mapped=bool(config.columns))
    except BadInputError as error:
        raise BadInputError(str(error), file=config.path) from error
    if layout is not None:
        return layout
    columns = ", ".join(sorted({name for record in records for name in record})[:20])
    raise UnknownLayoutError(
        f"cannot tell what the columns mean ({columns}); name them: --map prompt=... --map chosen=... "
        "--map rejected=... (or response_a, response_b, label)",
        file=config.path,
    )


def _sample(container: Container) -> Sample:
    sample: Sample = []
    size = 0
    try:
        for row, record, _ in container.records():
            sample.append((row, record))
            size += content_bytes(record)
            if len(sample) == SAMPLE_ROWS or (len(sample) >= 3 and size > PEEK_BYTES):
                break
    except AssayError:  # the container is damaged: what comes before is to be imported
        if not any(isinstance(record, dict) for _, record in sample):
            raise
    return sample


def _names(sample: Sample) -> str:
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
