"""Pairs labelled by a hierarchy of factors: the first factor that differs by more than its margin decides.

    name: summaries
    factors:                                  # the most important first
      - {rating: factuality, margin: 0}       # ratings in the store: of the source, of people
      - {score: helpful-rm, margin_std: 0.5}  # rewards in the store (assay score --save), half a deviation
      - {text: words, prefer: low, margin: 20}

Source: HERON, "Deep Reinforcement Learning from Hierarchical Weak Preference Feedback", arXiv 2309.02632: margins in
deviations over all responses, pairs that no factor decides are left out (notes on its code, which takes the second
margin for all further levels; here each has its own). With positive margins the relation is not transitive.

Covers: all pairs of responses of a prompt that have the factors, as silver decisions with the factor as reason. Leaves
out: computing ratings and scores, training on the pairs (a snapshot of pool silver).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import yaml
from annotated_types import Ge

from assay import ids
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.settings import CheckedSettings, check_settings
from assay.store.database import Connection, registered
from assay.store.records import Decision, insert_decisions
from assay.store.scored_models import LAST_REWARDS
from assay.workspace import Workspace

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
TextFactor = Literal["words", "characters"]
RULE = "factors"
PAGE = 500  #: prompts decided in one unit of work
_TEXT = {"words": "len(regexp_extract_all(content, '\\S+'))", "characters": "length(content)"}


@dataclass(frozen=True)
class Factor(CheckedSettings):
    """One of `rating` (an aspect), `score` (a model's name) and `text`. `margin_std`: the margin in deviations over all
    responses."""

    rating: str | None = None
    score: str | None = None
    text: TextFactor | None = None
    prefer: Literal["high", "low"] = "high"
    margin: Annotated[float | None, Ge(0)] = None
    margin_std: Annotated[float | None, Ge(0)] = None

    def __post_init__(self) -> None:
        check_settings(self)
        if [self.rating, self.score, self.text].count(None) != 2:
            raise BadInputError(
                f"needs one of rating, score, text ({', '.join(get_args(TextFactor))})", field="factors"
            )
        if self.margin is not None and self.margin_std is not None:
            raise BadInputError(f"{self.label}: either margin or margin_std", field="factors")

    @property
    def label(self) -> str:
        return self.rating or (f"score of {self.score}" if self.score is not None else str(self.text))

    def values(self) -> tuple[str, list[str]]:
        """SQL of (response_id, value), and its parameters."""
        if self.rating is not None:
            return "SELECT response_id, avg(value) FROM standing_response_judgments WHERE aspect = ? GROUP BY 1", [
                self.rating
            ]
        if self.score is not None:
            return LAST_REWARDS.format(name="?"), [self.score]
        return f"SELECT response_id, {_TEXT[str(self.text)]} FROM responses", []


@dataclass(frozen=True)
class FactorHierarchy:
    name: str
    factors: tuple[Factor, ...]

    @classmethod
    def read(cls, path: Path) -> "FactorHierarchy":
        """Raises BadInputError naming the file and the field."""
        try:
            payload = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInputError(f"cannot be read: {error.strerror}", file=path) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
        listed = payload.get("factors") if isinstance(payload, Mapping) else None
        if not isinstance(listed, list) or not listed or not all(isinstance(entry, Mapping) for entry in listed):
            raise BadInputError("must be a list of at least one factor", file=path, field="factors")
        try:
            return cls(str(payload.get("name") or path.stem), tuple(Factor(**entry) for entry in listed))
        except (TypeError, BadInputError) as error:
            raise BadInputError(str(error), file=path, field="factors") from error


@dataclass
class FactorReport:
    """Counts of pairs. `by_factor`: decided by each; `overtaken`: decided otherwise before, which stands."""

    prompts: int
    decided: int
    undecided: int
    missing: int
    overtaken: int
    by_factor: dict[str, int]
    margins: dict[str, float]


def deciding(first: Floats, second: Floats, margins: Floats) -> tuple[Ints, Ints]:
    """Of pairs with factors [N, F] in order of importance, the larger the better: the better side (1, -1 or 0) and the
    level from 1 that says so, both [N]. (0, 0): no factor says so. (0, level): the factor of that level is missing
    (nan), and none above it says anything."""
    difference = first - second
    says = ~(np.abs(difference) <= margins)  # true for nan
    level = np.where(says.any(axis=1), says.argmax(axis=1) + 1, 0)
    at = difference[np.arange(len(level)), level - 1]
    side = np.where((level == 0) | np.isnan(at), 0, np.where(at > 0, 1, -1))
    return side, level


def label_by_factors(
    workspace: Workspace, hierarchy: FactorHierarchy, run_id: str, *, advance: Advance = silent
) -> FactorReport:
    """Decide all pairs, page by page, each durable. Raises BadInputError for a factor that no response has."""
    with workspace.store.unit() as db:
        prompts, responses, values = _values(db, hierarchy.factors)
    for factor, column in zip(hierarchy.factors, values.T, strict=True):
        if np.isnan(column).all():  # also of no response at all
            hint = "; assay score --save gives it" if factor.score is not None else ""
            raise BadInputError(f"no response has the factor {factor.label!r}{hint}", field="factors")
    deviations = np.nanstd(values, axis=0)
    margins = np.array(
        [
            f.margin_std * deviation if f.margin_std is not None else f.margin or 0.0
            for f, deviation in zip(hierarchy.factors, deviations, strict=True)
        ]
    )
    labels = [factor.label for factor in hierarchy.factors]
    groups = np.split(np.arange(len(prompts)), np.flatnonzero(prompts[1:] != prompts[:-1]) + 1)
    report = FactorReport(0, 0, 0, 0, 0, dict.fromkeys(labels, 0), dict(zip(labels, margins.tolist(), strict=True)))
    for start in range(0, len(groups), PAGE):
        pairs = [pair for rows in groups[start : start + PAGE] for pair in combinations(rows.tolist(), 2)]
        report.prompts += len(groups[start : start + PAGE])
        if not pairs:
            continue
        i, j = np.array(pairs).T
        sides, levels = deciding(values[i], values[j], margins)
        report.undecided += int((levels == 0).sum())
        report.missing += int(((sides == 0) & (levels > 0)).sum())
        page: list[tuple[str, str, str, Decision]] = []
        for first, second, side, level in zip(i.tolist(), j.tolist(), sides.tolist(), levels.tolist(), strict=True):
            prompt, low, high = prompts[first], responses[first], responses[second]  # by their ids: A, then B
            comparison = ids.comparison_id(prompt, low, high)
            if not side:
                reason = f"factor {labels[level - 1]} is missing" if level else "no factor differs beyond its margin"
                page.append((prompt, low, high, Decision(comparison, "discarded", None, RULE, reason, basis=())))
                continue
            sign = -1 if hierarchy.factors[level - 1].prefer == "low" else 1
            a, b = (sign * values[row, level - 1] for row in (first, second))
            reason = f"factor {level}, {labels[level - 1]}: {a:.4g} against {b:.4g}"
            label: Literal["A", "B"] = "A" if side > 0 else "B"
            page.append((prompt, low, high, Decision(comparison, "silver", label, RULE, reason, basis=())))
            report.by_factor[labels[level - 1]] += 1
        with workspace.store.unit() as db:
            report.overtaken += _write(db, page, hierarchy.name, run_id)
        advance(len(page))
    report.decided = sum(report.by_factor.values()) - report.overtaken
    return report


def _values(db: Connection, factors: Sequence[Factor]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Floats]:
    """Prompt and response ids [R], and factors [R, F], the larger the better, of responses that have one that is not
    of their text alone; ordered by prompt and response id."""
    parameters: list[str] = []
    joins, columns = [], []
    for n, factor in enumerate(factors):
        query, bound = factor.values()
        parameters += bound
        joins.append(f"LEFT JOIN ({query}) AS v{n}(response_id, value) ON v{n}.response_id = r.response_id")
        columns.append(f"({'-' if factor.prefer == 'low' else ''}v{n}.value)::DOUBLE AS f{n}")
    rated = [f"v{n}.value" for n, factor in enumerate(factors) if factor.text is None]
    condition = f"coalesce({', '.join(rated)}) IS NOT NULL" if rated else "true"
    table: Any = db.sql(
        f"""SELECT r.prompt_id, r.response_id, {", ".join(columns)} FROM responses r {" ".join(joins)}
            WHERE {condition} ORDER BY r.prompt_id, r.response_id""",
        params=parameters,
    ).to_arrow_table()
    prompts, responses, *values = (column.to_numpy() for column in table.columns)
    return prompts, responses, np.stack(values, axis=1).astype(np.float64)


def _write(db: Connection, page: Sequence[tuple[str, str, str, Decision]], name: str, run_id: str) -> int:
    """The decided comparisons that are new with their origin, and the decisions; of pairs left out only where an
    earlier hierarchy had decided them. Returns how many another rule had decided before, which stands."""
    import pyarrow as pa

    listed = db.execute(
        """SELECT comparison_id, rule FROM current_decisions JOIN (SELECT unnest($ids) AS comparison_id)
           USING (comparison_id)""",
        {"ids": [decision.comparison_id for *_, decision in page]},
    ).fetchall()
    rules = dict(listed)
    decided = [row for row in page if rules.get(row[3].comparison_id, RULE) == RULE]
    rows = [(decision.comparison_id, *pair) for *pair, decision in decided if decision.label is not None]
    columns = {key: [row[n] for row in rows] for n, key in enumerate(("comparison_id", "prompt_id", "a", "b"))}
    with registered(db, "incoming_pairs", pa.table({key: pa.array(v, pa.string()) for key, v in columns.items()})):
        db.execute(
            """INSERT INTO comparisons (comparison_id, prompt_id, response_a, response_b, run_id)
               SELECT comparison_id, prompt_id, a, b, $run FROM incoming_pairs i
               WHERE NOT EXISTS (SELECT 1 FROM comparisons c WHERE c.comparison_id = i.comparison_id)""",
            {"run": run_id},
        )
        db.execute(
            """INSERT INTO origins (comparison_id, source, record_id, category, run_id)
               SELECT i.comparison_id, o.source, $name || ' ' || i.comparison_id, o.category, $run
               FROM incoming_pairs i JOIN (
                   SELECT response_id, min(source) AS source, min(category) AS category FROM response_origins
                   GROUP BY response_id) o ON o.response_id = i.a
               WHERE NOT EXISTS (SELECT 1 FROM origins k WHERE k.comparison_id = i.comparison_id)""",
            {"run": run_id, "name": name},
        )
    insert_decisions(db, (d for *_, d in decided if d.label is not None or d.comparison_id in rules), run_id)
    return sum(d.label is not None and rules.get(d.comparison_id, RULE) != RULE for *_, d in page)
