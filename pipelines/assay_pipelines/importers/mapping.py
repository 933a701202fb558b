"""Columns under other names: `--map OURS=THEIRS`, where theirs may be a path; and `--values CODE=LABEL` for labels.

Leaves out: what the columns mean, which the general layouts say (`formats.trl`, and the adapters
that are `mappable`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assay.errors import BadInputError
from assay_pipelines.importers.adapters.paths import Getter, columns_of, getter
from assay_pipelines.importers.adapters.schema import code_text
from assay_pipelines.importers.formats.columns import LABEL_SPELLINGS
from assay_pipelines.importers.formats.trl import TARGETS as PAIR_TARGETS

#: Our columns: those of pairs, and of responses with ratings, scores, ranks or votes.
TARGETS = PAIR_TARGETS | {"response", "responses", "scores", "ranks", "score", "ratings", "votes"}
TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True)
class ColumnMapping:
    """`paths`: our column -> a column or path of the source. `values`: code -> label, or true and false."""

    paths: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.paths) - TARGETS):
            raise BadInputError(f"cannot map to {unknown[0]!r}; columns are {', '.join(sorted(TARGETS))}", field="map")
        for path in self.paths.values():
            if not _is_column_name(path):
                getter(path)
        for code, label in self.values.items():
            if label.strip().lower() not in (*LABEL_SPELLINGS, *TRUTHS):
                labels = "first, second, tie, both_good, both_bad, skip, true or false"
                raise BadInputError(f"{code}={label}: not a label ({labels})", field="values")

    def __bool__(self) -> bool:
        return bool(self.paths or self.values)

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with mapped values under our names; other columns keep theirs unless that name is taken."""
        if not self:
            return record
        out = record
        if self.paths:
            moved = set(self.paths.values())
            out = {name: cell for name, cell in record.items() if name not in moved and name not in self.paths}
            for target, path, get in self._getters:
                if path in record:
                    out[target] = record[path]
                elif get is not None and (value := get(record)) is not None:
                    out[target] = value
        if self.values and "label" in out:
            code = code_text(out["label"])
            if code in self._labels:
                out = {**out, "label": self._labels[code]}
        return out

    def require_columns(self, columns: Sequence[str], file: str) -> None:
        """Raises BadInputError for a path that begins with none of the source's columns."""
        for path in self.paths.values():
            if path in columns:
                continue
            heads = [] if _is_column_name(path) else columns_of(path)
            if not any(head in columns for head in heads):
                raise BadInputError(f"no such column; there are {', '.join(columns)}", file=file, field=path)

    @cached_property
    def _getters(self) -> list[tuple[str, str, Getter | None]]:
        return [(target, path, None if _is_column_name(path) else getter(path)) for target, path in self.paths.items()]

    @cached_property
    def _labels(self) -> dict[str, str | bool]:
        spelled = {code_text(code): label.strip().lower() for code, label in self.values.items()}
        return {code: TRUTHS.get(label, label) for code, label in spelled.items()}


def parse_mapping(maps: Sequence[str], values: Sequence[str]) -> ColumnMapping:
    """Of the options' texts: OURS=THEIRS, and CODE=LABEL with commas between several. Raises BadInputError."""
    paths = dict(_assignment(entry, "--map takes OURS=THEIRS") for entry in maps)
    codes = dict(_assignment(code, "--values takes CODE=LABEL,...") for entry in values for code in entry.split(","))
    return ColumnMapping(paths, codes)


def _assignment(entry: str, form: str) -> tuple[str, str]:
    ours, equals, theirs = entry.partition("=")
    if not (ours.strip() and equals and theirs.strip()):
        raise BadInputError(f"{form}, not {entry!r}")
    return ours.strip(), theirs.strip()


def _is_column_name(path: str) -> bool:
    """Whether it can only be a column's name, as one with spaces is, which is no expression."""
    return " " in path and not set("[]{}()|@&'\"`") & set(path)
