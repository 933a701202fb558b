"""Means of per-item figures by stratum, aggregates of them, and their intervals.

A benchmark's figures are means: of a subset's items, of the nine cells of a matrix, of prompts. A `Stratum` holds the
figures of the items of one part, a column each; a protocol computes the named aggregates from the strata's means with
array arithmetic, so that one function gives values and how they follow each mean.

Intervals (95 %): Wilson for a share of items with distinct prompts; else by prompts within each stratum (the strata's
sizes are the benchmark's, not chance) with a small-sample correction. Leaves out: which aggregates there are (the
protocols).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from assay.statistics.intervals import (
    LEAST_CLUSTERS,
    Interval,
    around,
    clustered_mean,
    correlation_within,
    degrees_of_freedom,
    wilson,
)

Floats: TypeAlias = npt.NDArray[np.float64]
#: "STRATUM/COLUMN" -> its mean, of shape [1], or its resampled means, of shape [resamples].
Means: TypeAlias = Mapping[str, Floats]
Combine: TypeAlias = Callable[[Means], dict[str, Floats]]
#: Aggregate -> the (stratum, column)s it pools.
Shares: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]

_STEP = 1e-4  #: by which means are moved, to see how an aggregate follows
_NOTHING = 1e-9  #: slopes below are rounding


@dataclass(frozen=True)
class Stratum:
    """`values` [items, columns]; NaN where an item has no such figure. `clusters`: each item's prompt."""

    name: str
    columns: tuple[str, ...]
    values: Floats
    clusters: tuple[str, ...]

    @classmethod
    def of(cls, name: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[float]]]) -> "Stratum | None":
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
    """`method`: "wilson", "clustered", or "bootstrap" (coefficients that are no means)."""

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


@dataclass(frozen=True)
class _Influence:
    """How much each prompt of one stratum moves each aggregate: `moves` [G, aggregates], and its degrees of freedom."""

    clusters: npt.NDArray[np.str_]
    moves: Floats
    freedom: float


def clustered_intervals(
    strata: Sequence[Stratum], combine: Combine, less: Sequence[Stratum] = ()
) -> dict[str, NamedInterval | None]:
    """Interval of each aggregate, whose errors depend on each other within a prompt, also across strata.

    With `less` (the same strata and items, measured with another model): of the difference to theirs. None, which is
    "undetermined", under LEAST_CLUSTERS prompts, and where a stratum has one prompt: its own variation is not known.

    An aggregate is made linear in the strata's means (delta method); a prompt's influence is its CR2 residual in each
    stratum (see `assay.statistics.intervals`), summed over strata; degrees of freedom are Welch and Satterthwaite's.
    """
    names, influences = _influences(strata, combine)
    values = combine(means(strata))
    others = combine(means(less)) if less else {}
    if less:
        minus = {stratum.name: one for stratum, one in zip(less, _influences(less, combine, names)[1], strict=True)}
        influences = [
            _Influence(one.clusters, one.moves - minus[stratum.name].moves, one.freedom)
            for stratum, one in zip(strata, influences, strict=True)
        ]
    clusters, member = np.unique(np.concatenate([one.clusters for one in influences]), return_inverse=True)
    moves = np.concatenate([one.moves for one in influences])
    out: dict[str, NamedInterval | None] = {}
    for n, name in enumerate(names):
        value = float(values[name][0]) - (float(others[name][0]) if less else 0.0)
        by_stratum = np.array([float((one.moves[:, n] ** 2).sum()) for one in influences])
        error = math.sqrt(float((np.bincount(member, weights=moves[:, n]) ** 2).sum()))
        touched = np.unique(member[moves[:, n] != 0])
        known = math.isfinite(error) and math.isfinite(value) and error > 0
        if not known or len(clusters) < LEAST_CLUSTERS or len(touched) < 2:
            out[name] = None
        else:
            freedom = by_stratum.sum() ** 2 / sum(
                v**2 / one.freedom for v, one in zip(by_stratum, influences, strict=True) if v > 0
            )
            interval = around(value, error, float(freedom))
            out[name] = NamedInterval(interval.low, interval.high, "clustered")
    return out


def _influences(
    strata: Sequence[Stratum], combine: Combine, names: Sequence[str] = ()
) -> tuple[list[str], list[_Influence]]:
    """Of each stratum; a stratum of one prompt has an influence that is not a number where it counts."""
    centre = means(strata)
    keys = [key for stratum in strata for key in stratum.keys()]  # noqa: SIM118  (not a mapping)
    moved = {key: np.repeat(centre[key], len(keys) + 1) for key in keys}
    for n, key in enumerate(keys):
        moved[key][n] += _STEP
    combined = combine(moved)
    names = list(names or combined)
    slopes = {key: np.array([combined[a][n] - combined[a][-1] for a in names]) / _STEP for n, key in enumerate(keys)}
    influences = []
    for stratum in strata:
        clusters, member = np.unique(np.asarray(stratum.clusters), return_inverse=True)
        sizes = np.bincount(member).astype(float)
        moves = np.zeros((len(clusters), len(names)))
        for column, key in zip(stratum.values.T, stratum.keys(), strict=True):
            present = ~np.isnan(column)
            counts = np.bincount(member, weights=present.astype(float))
            total = counts.sum()
            residuals = np.bincount(member, weights=np.where(present, column - centre[key][0], 0.0))
            with np.errstate(invalid="ignore", divide="ignore"):
                scaled = residuals / np.sqrt(1 - counts / total) / total
                counted = np.where(np.abs(slopes[key]) > _NOTHING, slopes[key], 0.0)
                step = scaled[:, None] * counted[None, :]
            moves += np.where(counted[None, :] == 0, 0.0, step)
        figures = np.nan_to_num(np.nanmean(np.c_[stratum.values, np.zeros(len(member))], axis=1))
        sums: Floats = np.bincount(member, weights=figures).astype(np.float64)
        correlated = correlation_within(figures, member, sums, sizes) if len(sizes) > 1 else 1.0
        freedom = degrees_of_freedom(sizes, correlated) if len(sizes) > 1 else 1.0
        influences.append(_Influence(clusters, moves, freedom))
    return names, influences


def mean_interval(values: Sequence[float], clusters: Sequence[str]) -> NamedInterval | None:
    """Interval of a plain mean; None under LEAST_CLUSTERS clusters, and where all values are equal."""
    interval = clustered_mean(values, clusters) if len(set(values)) > 1 else None
    return None if interval is None else NamedInterval(interval.low, interval.high, "clustered")


def share_interval(parts: Sequence[tuple[Stratum, str]]) -> NamedInterval | None:
    """Wilson's interval of the pooled column, or None where it is not a plain share of independent items, or of under
    LEAST_CLUSTERS of them."""
    values = np.concatenate([stratum.column(column) for stratum, column in parts])
    present = ~np.isnan(values)
    clusters = [cluster for stratum, _ in parts for cluster in stratum.clusters]
    used = [cluster for cluster, is_present in zip(clusters, present, strict=True) if is_present]
    values = values[present]
    if len(values) < LEAST_CLUSTERS or len(set(used)) < len(used) or not np.isin(values, (0.0, 1.0)).all():
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
