"""Means of per-item figures by stratum, aggregates of them, and their intervals.

A benchmark's figures are means: of a subset's items, of the nine cells of a matrix, of prompts. A `Stratum` holds the
figures of the items of one part, a column each; a protocol computes the named aggregates from the strata's means with
array arithmetic, so that one function gives values and resampled values for intervals.

Intervals (95 %): Wilson for a share of items with distinct prompts; else the percentile bootstrap over prompts within
each stratum (the strata's sizes are the benchmark's, not chance). Leaves out: which aggregates there are (the
protocols).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from assay.statistics.intervals import Interval, wilson

Floats: TypeAlias = npt.NDArray[np.float64]
#: "STRATUM/COLUMN" -> its mean, of shape [1], or its resampled means, of shape [resamples].
Means: TypeAlias = Mapping[str, Floats]
Combine: TypeAlias = Callable[[Means], dict[str, Floats]]
#: Aggregate -> the (stratum, column)s it pools.
Shares: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]

RESAMPLES = 2000
_CELLS = 4_000_000  # resampled indices held at once


@dataclass(frozen=True)
class Stratum:
    """`values` [items, columns]; NaN where an item has no such figure. `clusters`: each item's prompt."""

    name: str
    columns: tuple[str, ...]
    values: Floats
    clusters: tuple[str, ...]

    @classmethod
    def of(cls, name: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[float]]]) -> Stratum | None:
        """`rows`: cluster and figures of each item; None where there is no row."""
        members = list(rows)
        if not members:
            return None
        values = np.array([figures for _, figures in members], dtype=float).reshape(len(members), len(columns))
        return cls(name, tuple(columns), values, tuple(cluster for cluster, _ in members))

    def keys(self) -> list[str]:
        return [f"{self.name}/{column}" for column in self.columns]

    def column(self, name: str) -> Floats:
        return self.values[:, self.columns.index(name)]


@dataclass(frozen=True)
class NamedInterval:
    """`method`: "wilson" or "bootstrap"."""

    low: float
    high: float
    method: str

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "method": self.method}


def means(strata: Sequence[Stratum]) -> dict[str, Floats]:
    """The plain means, of shape [1] each; NaN for a column without any value."""
    out: dict[str, Floats] = {}
    for stratum in strata:
        present = ~np.isnan(stratum.values)
        sums = np.where(present, stratum.values, 0.0).sum(axis=0)
        with np.errstate(invalid="ignore"):
            out.update(zip(stratum.keys(), (sums / present.sum(axis=0))[:, None], strict=True))
    return out


def resampled_means(strata: Sequence[Stratum], *, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, Floats]:
    """Means of `resamples` draws with replacement of each stratum's prompts; shape [resamples] each.

    The draws depend on the seed, the stratum's name and its number of prompts alone: two models that are compared on
    the same items are resampled alike.
    """
    out: dict[str, Floats] = {}
    for stratum in strata:
        _, member = np.unique(np.asarray(stratum.clusters), return_inverse=True)
        groups = int(member.max()) + 1
        present = ~np.isnan(stratum.values)
        filled = np.where(present, stratum.values, 0.0)
        sums = np.stack([np.bincount(member, weights=column) for column in filled.T], axis=1)
        counts = np.stack([np.bincount(member, weights=column) for column in present.T.astype(float)], axis=1)
        rng = np.random.default_rng([seed, zlib.crc32(stratum.name.encode())])
        drawn_means = np.empty((resamples, len(stratum.columns)))
        step = max(1, _CELLS // groups)
        for start in range(0, resamples, step):
            size = min(step, resamples - start)
            drawn = rng.integers(groups, size=(size, groups))
            offset = drawn + groups * np.arange(size)[:, None]
            weights = np.bincount(offset.ravel(), minlength=size * groups).reshape(size, groups).astype(float)
            with np.errstate(invalid="ignore"):
                drawn_means[start : start + size] = (weights @ sums) / (weights @ counts)
        out.update(zip(stratum.keys(), drawn_means.T, strict=True))
    return out


def percentile_interval(draws: Floats) -> NamedInterval | None:
    """None where fewer than two draws have a value."""
    finite = draws[~np.isnan(draws)]
    if len(finite) < 2:
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return NamedInterval(float(low), float(high), "bootstrap")


def share_interval(parts: Sequence[tuple[Stratum, str]]) -> NamedInterval | None:
    """Wilson's interval of the pooled column, or None where it is not a plain share of independent items."""
    values = np.concatenate([stratum.column(column) for stratum, column in parts])
    present = ~np.isnan(values)
    clusters = [cluster for stratum, _ in parts for cluster in stratum.clusters]
    used = [cluster for cluster, is_present in zip(clusters, present, strict=True) if is_present]
    values = values[present]
    if not len(values) or len(set(used)) < len(used) or not np.isin(values, (0.0, 1.0)).all():
        return None
    interval: Interval = wilson(float(values.sum()), len(values))
    return NamedInterval(interval.low, interval.high, "wilson")


def pooled(means: Means, shares: Shares, sizes: Mapping[str, int]) -> dict[str, Floats]:
    """Each share over the items of all its strata; `sizes`: items of a stratum."""
    out: dict[str, Floats] = {}
    for group, members in shares.items():
        total = sum(sizes[name] for name, _ in members)
        out[group] = sum(sizes[name] / total * means[f"{name}/{column}"] for name, column in members)  # type: ignore[assignment]
    return out


def pooled_sizes(shares: Shares, sizes: Mapping[str, int]) -> dict[str, int]:
    """Items behind each share."""
    return {group: sum(sizes[name] for name, _ in members) for group, members in shares.items()}


def sizes_of(strata: Sequence[Stratum]) -> dict[str, int]:
    return {stratum.name: len(stratum.values) for stratum in strata}


def mean_of(parts: Sequence[Floats]) -> Floats:
    """The unweighted mean of means, elementwise."""
    out: Floats = np.mean(np.stack(list(parts)), axis=0)
    return out
