"""What each source, judge and person is worth: how often their A/B answers are right on gold, with an interval.

Covers: Beta posteriors overall and by category, shrunk to the annotator's own figure; what an interval says; the log
odds that an answer adds. Leaves out: what is done with it (`labels`, `source_pass`).

Votes that people's gold was made of, and a verifier's own gold, are not counted for them. Gold that a loop gathered
near its model's errors is harder than the rest, so that figures on it are on the low side.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.statistics.intervals import Interval, beta_posterior
from assay.store.database import Connection

#: sound: right in more than half of the cases for sure; adversarial: in less than half for sure; chance: neither is
#: sure after LEAST answers; unmeasured: too few answers to tell.
Worth: TypeAlias = Literal["sound", "adversarial", "chance", "unmeasured"]
LEAST = 10  #: answers on gold under which nothing is said of an annotator
LEAST_IN_CATEGORY = 10  #: answers on gold of a category under which it has no figure of its own
CATEGORY_PRIOR = 20.0  #: answers that an annotator's overall figure counts in a category


@dataclass(frozen=True, slots=True)
class SourceReliability:
    """P(an A/B answer of the annotator is right): `mean`, 95 % interval, after `right` of `compared` on gold.
    `category`: None = over all."""

    annotator_id: str
    kind: str
    name: str
    category: str | None
    compared: int
    right: int
    mean: float
    interval: Interval

    @property
    def worth(self) -> Worth:
        if self.interval.low > 0.5:
            return "sound"
        if self.interval.high < 0.5:
            return "adversarial"
        return "chance" if self.compared >= LEAST else "unmeasured"

    @property
    def cautious(self) -> float:
        """The end of the interval that is nearer to 1/2, and 1/2 where that is in_category: what is sure of it."""
        if self.worth == "sound":
            return self.interval.low
        return self.interval.high if self.worth == "adversarial" else 0.5

    @property
    def text(self) -> str:
        return (
            f"right on {self.right} of {self.compared} gold pairs "
            f"({self.mean:.1%} [{self.interval.low:.1%}, {self.interval.high:.1%}])"
        )


@dataclass(frozen=True)
class Reliabilities:
    """`overall`: by annotator id. `by_category`: by (annotator id, category), where there is data."""

    overall: Mapping[str, SourceReliability]
    by_category: Mapping[tuple[str, str], SourceReliability]

    def of(self, annotator_id: str, category: str | None = None) -> SourceReliability | None:
        """In the category where its interval there excludes its overall figure, else over all: of many categories some
        look better than the others by chance. None for one that never met gold."""
        overall_figure = self.overall.get(annotator_id)
        in_category = self.by_category.get((annotator_id, category)) if category is not None else None
        if (
            overall_figure is None
            or in_category is None
            or in_category.interval.low <= overall_figure.mean <= in_category.interval.high
        ):
            return overall_figure
        return in_category

    def rows(self) -> list[SourceReliability]:
        """Each annotator over all, then by category; sources first, the least reliable first."""
        order = sorted(self.overall.values(), key=lambda r: (r.kind != "source", r.kind, r.mean, r.name))
        in_category = sorted(self.by_category.values(), key=lambda r: r.category or "")
        return [
            row
            for overall_figure in order
            for row in (overall_figure, *(r for r in in_category if r.annotator_id == overall_figure.annotator_id))
        ]


# A verifier does not check its own gold, nor people the gold made of their votes (as in `source_errors`).
_ON_GOLD = """
    SELECT n.annotator_id, n.kind, n.name, coalesce(o.category, ''), j.comparison_id, j.answer = d.label
    FROM opinions j JOIN annotators n USING (annotator_id) JOIN current_decisions d USING (comparison_id)
    LEFT JOIN (SELECT comparison_id, min(category) AS category FROM origins GROUP BY comparison_id) o
        USING (comparison_id)
    WHERE d.pool = 'gold' AND d.label IN ('A', 'B') AND j.answer IN ('A', 'B')
      AND NOT (d.rule = 'verifier' AND n.kind = 'verifier') AND NOT (d.rule <> 'verifier' AND n.kind = 'human')
    QUALIFY row_number() OVER (
        PARTITION BY j.comparison_id, j.annotator_id ORDER BY j.created_at DESC, j.judgment_id) = 1"""


def reliabilities(db: Connection, *, without: Iterable[str] = ()) -> Reliabilities:
    """Of every annotator that answered A or B where gold has a side. `without`: gold comparisons that do not count,
    as in cross-validation. Reads the gold decisions alone."""
    excluded = set(without)
    rows = [row for row in db.execute(_ON_GOLD).fetchall() if row[4] not in excluded]
    return from_answers([(*row[:4], bool(row[5])) for row in rows])


def from_answers(answers: Sequence[tuple[str, str, str, str, bool]]) -> Reliabilities:
    """From (annotator id, kind, name, category, right) of every answer; a category of "" is none."""
    overall_figure: dict[str, tuple[str, str, list[bool]]] = {}
    in_category: dict[tuple[str, str], list[bool]] = {}
    for annotator, kind, name, category, right in answers:
        overall_figure.setdefault(annotator, (kind, name, []))[2].append(right)
        if category:
            in_category.setdefault((annotator, category), []).append(right)
    overall = {
        a: _reliability(a, kind, name, None, answers_right, 0.5, 2.0)
        for a, (kind, name, answers_right) in overall_figure.items()
    }
    by_category = {
        (a, c): _reliability(a, *overall_figure[a][:2], c, answers_right, overall[a].mean, CATEGORY_PRIOR)
        for (a, c), answers_right in in_category.items()
        if len(answers_right) >= LEAST_IN_CATEGORY and len(answers_right) < len(overall_figure[a][2])
    }
    return Reliabilities(overall, by_category)


def _reliability(
    annotator: str, kind: str, name: str, category: str | None, answers_right: list[bool], prior: float, size: float
) -> SourceReliability:
    posterior = beta_posterior(sum(answers_right), len(answers_right), prior_mean=prior, prior_size=size)
    return SourceReliability(
        annotator, kind, name, category, len(answers_right), sum(answers_right), posterior.mean, posterior.interval
    )


def log_odds(p: float) -> float:
    """Of being right; that of 0 and 1 is infinite and has no place here."""
    return math.log(p / (1 - p))
