"""Which container and which layout a source has: said by the caller, or recognised from its first rows.

Covers: `open_source`, the one way from a path or `hf:NAME` to an iterator of batches. Leaves out: the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from assay.errors import AssayError, BadInputError
from assay.json_lines import RowError
from assay_pipelines.importers.containers import Container, Csv, HubDataset, JsonLines, Parquet, Record
from assay_pipelines.importers.hh import looks_like_hh, parse_hh
from assay_pipelines.importers.normalised import looks_normalised, parse_normalised
from assay_pipelines.importers.rows import BatchBuilder, PairRow, ReadBatch
from assay_pipelines.importers.trl import TARGETS, parse_trl
from assay_pipelines.importers.unpaired import looks_unpaired, paired

Format: TypeAlias = Literal["auto", "hh", "trl", "normalised", "jsonl", "csv", "parquet", "hf"]
FORMATS: tuple[str, ...] = get_args(Format)
PEEK = 100
SUFFIXES = frozenset({".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".gz", ".zst"})

Parse: TypeAlias = Callable[[Mapping[str, Any]], list[PairRow | RowError]]


@dataclass(frozen=True)
class ImportConfig:
    """What to read and how. `mapping`: our column -> the source's column. `limit`: rows to read."""

    path: str
    format: Format = "auto"
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
        if self.mapping and self.format in ("hh", "normalised"):
            raise BadInputError(f"format {self.format} has fixed columns: drop --map or choose another", field="map")
        if self.limit is not None and self.limit < 1:
            raise BadInputError("must be at least 1", field="limit")


@dataclass(frozen=True)
class Source:
    """An opened source: what was recognised, and its batches."""

    config: ImportConfig
    container: Container
    layout: str
    spill: Path

    @property
    def recognised(self) -> str:
        return f"{_TITLES[self.layout]} in {self.container.description}"

    @property
    def name(self) -> str:
        """The source's name in the store, for rows that bring none."""
        return self.config.source or _stem(self.container.name)

    def batches(self) -> Iterator[ReadBatch]:
        """Pairs and rejects in bounded batches, in the order of the file."""
        builder = BatchBuilder(self.name, Path(self.container.name).name)
        records = islice(self.container.records(), self.config.limit)
        rows = self._unpaired(builder, records) if self.layout == "unpaired" else self._parsed(builder, records)
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
        """Put each row's pairs or its reject into the builder."""
        parse = _PARSERS[self.layout]
        for row, record, raw in records:
            renamed = record
            try:
                if isinstance(renamed, RowError):
                    raise renamed
                renamed = self._rename(renamed)
                for pair in parse(renamed):
                    if isinstance(pair, RowError):
                        builder.reject(row, pair, pair.detail)
                    else:
                        self._add(builder, row, pair)
            except RowError as error:
                builder.reject(row, error, _raw(record, raw))
            builder.row_done()
            yield

    def _unpaired(self, builder: BatchBuilder, records: Iterator[Record]) -> Iterator[None]:
        def counted() -> Iterator[Record]:
            for row, record, raw in records:
                builder.row_done()
                yield row, record if isinstance(record, RowError) else self._rename(record), raw

        for row, pair in paired(counted(), self.container, self.spill):
            if isinstance(pair, RowError):
                builder.reject(row, pair, None)
            else:
                self._add(builder, row, pair)
            yield

    def _add(self, builder: BatchBuilder, row: int, pair: PairRow) -> None:
        if self.config.source is not None:
            pair.source = self.config.source
        builder.add(row, pair)

    def _rename(self, record: dict[str, Any]) -> dict[str, Any]:
        return renamed(record, self.config.mapping)


_TITLES = {
    "hh": "HH-RLHF text",
    "trl": "preference pairs",
    "normalised": "the normalised form",
    "unpaired": "unpaired preference",
}
_PARSERS: dict[str, Parse] = {"hh": parse_hh, "trl": parse_trl, "normalised": parse_normalised}


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
    return Source(config, container, _layout(config, good), spill)


def renamed(record: dict[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """The record with mapped columns under our names; other columns keep theirs unless that name is taken."""
    if not mapping:
        return record
    taken = set(mapping.values())
    out = {name: value for name, value in record.items() if name not in taken and name not in mapping}
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
    return JsonLines(path)


def _layout(config: ImportConfig, records: list[dict[str, Any]]) -> str:
    if config.format in ("hh", "normalised"):
        return config.format
    tests: list[tuple[str, Callable[[Mapping[str, Any]], bool]]] = [
        ("hh", looks_like_hh),
        ("normalised", looks_normalised),
        ("trl", _looks_trl),
        ("unpaired", looks_unpaired),
    ]
    if config.format == "trl" or config.mapping:
        tests = tests[2:]
    for layout, test in tests:
        if any(test(record) for record in records):
            return layout
    if config.format == "trl":
        return "trl"
    columns = ", ".join(sorted({name for record in records for name in record})[:20])
    raise BadInputError(
        f"cannot tell what the columns mean ({columns}); name them: --map prompt=... --map chosen=... "
        "--map rejected=... (or response_a, response_b, label)",
        file=config.path,
    )


def _looks_trl(record: Mapping[str, Any]) -> bool:
    return {"chosen", "rejected"} <= record.keys() or {"prompt", "response_a", "response_b"} <= record.keys()


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
