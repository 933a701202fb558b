"""Comparisons on which two raters prefer different responses, the surest contradictions first.

A rater is a model's stored scores or an annotator's stored judgments; its margin is reward A - reward B of a pair, or
+-confidence (1 where none was given) of a judgment for A or B. Margins are made comparable by dividing each by its root
mean square over the pairs that both raters rated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from assay.browsing.messages import ConversationTurn
from assay.data.snapshots import POOLS
from assay.errors import BadInputError, NotFoundError
from assay.models.calibration import Calibration
from assay.statistics.intervals import Interval, wilson
from assay.store.database import Connection
from assay.store.scored_models import model_version
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_rm_training.calibration.stored import newest_calibrations

#: both: the less sure of the two raters decides the place; first, second: the margin of that one.
Order: TypeAlias = Literal["both", "first", "second"]
#: Whom the label in force supports; "unlabelled": there is none, or it is a tie.
Supports: TypeAlias = Literal["first", "second", "unlabelled"]
MOST_COUNTED = 48  #: raters whose common comparisons are counted
SHOWN_CHARACTERS = 4_000  #: of each response on a page


@dataclass(frozen=True)
class Rater:
    """Stored scores (`version`, `template_hash`, `principle`), or with `annotator_id` an annotator's judgments."""

    version: str = ""
    template_hash: str = ""
    principle: str = ""
    annotator_id: str = ""

    @property
    def reference(self) -> str:
        """`scores:VERSION:TEMPLATE:PRINCIPLE` or `judgments:ANNOTATOR`; `parse` reads it."""
        if self.annotator_id:
            return f"judgments:{self.annotator_id}"
        return f"scores:{self.version}:{self.template_hash}:{self.principle}"

    @classmethod
    def parse(cls, reference: str) -> "Rater":
        kind, _, reference_name = reference.partition(":")
        if kind == "judgments" and reference_name:
            return cls(annotator_id=reference_name)
        parts = reference_name.split(":", 2)
        if kind != "scores" or len(parts) != 3 or not all(parts[:2]):
            raise BadInputError(f"{reference!r} is neither scores:VERSION:TEMPLATE:PRINCIPLE nor judgments:ANNOTATOR")
        return cls(*parts)

    def name(self, db: Connection) -> str:
        """`MODEL@VERSION`, with its principle, or the annotator's name. Raises NotFoundError where it said nothing."""
        if self.annotator_id:
            row = db.execute("SELECT name FROM annotators WHERE annotator_id = ?", [self.annotator_id]).fetchone()
        else:
            row = db.execute(
                """SELECT arg_max(model, created_at) FROM scores
                   WHERE model_version = ? AND template_hash = ? AND principle = ? HAVING count(*) > 0""",
                [self.version, self.template_hash, self.principle],
            ).fetchone()
        if row is None:
            raise NotFoundError(f"the store holds nothing of {self.reference}")
        if self.annotator_id:
            return str(row[0])
        return f"{row[0]}@{self.version[:8]}" + (f" by {self.principle!r}" if self.principle else "")

    def query(self, prefix: str) -> tuple[str, dict[str, str]]:
        """SQL of (comparison_id, margin, reward_a, reward_b, uncertainty_a, uncertainty_b, confidence), and its
        parameters."""
        if self.annotator_id:
            # A confidence of 0 still goes with an answer.
            sql = f"""SELECT comparison_id, CASE answer WHEN 'A' THEN sure WHEN 'B' THEN -sure ELSE 0 END AS margin,
                             NULL::DOUBLE AS reward_a, NULL::DOUBLE AS reward_b,
                             NULL::DOUBLE AS uncertainty_a, NULL::DOUBLE AS uncertainty_b, confidence
                      FROM (SELECT comparison_id, answer, confidence, greatest(coalesce(confidence, 1), 1e-3) AS sure
                            FROM (SELECT comparison_id, arg_max(answer, created_at) AS answer,
                                         arg_max_null(confidence, created_at) AS confidence
                                  FROM opinions WHERE annotator_id = ${prefix}annotator AND answer <> 'skip'
                                  GROUP BY comparison_id))"""
            return sql, {f"{prefix}annotator": self.annotator_id}
        sql = f"""SELECT c.comparison_id, a.reward - b.reward AS margin, a.reward AS reward_a, b.reward AS reward_b,
                         a.uncertainty AS uncertainty_a, b.uncertainty AS uncertainty_b, NULL::DOUBLE AS confidence
                  FROM comparisons c JOIN {prefix}_own a ON a.response_id = c.response_a
                                     JOIN {prefix}_own b ON b.response_id = c.response_b"""
        return sql, {
            f"{prefix}version": self.version,
            f"{prefix}template": self.template_hash,
            f"{prefix}principle": self.principle,
        }

    def scores(self, prefix: str) -> str:
        """The common table expression that `query` reads; empty for judgments."""
        if self.annotator_id:
            return ""
        return f"""{prefix}_own AS MATERIALIZED (
            SELECT response_id, reward, uncertainty FROM scores
            WHERE model_version = ${prefix}version AND template_hash = ${prefix}template
              AND principle = ${prefix}principle AND reward IS NOT NULL), """


@dataclass(frozen=True)
class KnownAnnotator:
    """`opinions`: standing judgments that say something."""

    annotator_id: str
    kind: str
    name: str
    opinions: int


@dataclass(frozen=True)
class RaterAgreement:
    """Of comparisons. `common`: rated by both. `tied`: where either has no preference. `share`: `agree` of those where
    both have one, with Wilson's interval. `supports`: of `disagree`, whom the label in force supports."""

    first: str
    second: str
    common: int
    agree: int
    disagree: int
    tied: int
    share: float | None
    interval: Interval | None
    supports: Mapping[Supports, int]


@dataclass(frozen=True)
class Side:
    """One rater's view of a pair. `margin` > 0 prefers A. `probability`: of its own preference, by its newest
    calibration, or the confidence that came with a judgment; None without either."""

    margin: float
    relative_margin: float
    prefers: Literal["A", "B"]
    probability: float | None
    reward_a: float | None
    reward_b: float | None
    uncertainty_a: float | None
    uncertainty_b: float | None


@dataclass(frozen=True)
class Contradiction:
    """A pair on which the two disagree. Texts are cut to `SHOWN_CHARACTERS`; `characters`: whole, of A and of B."""

    comparison_id: str
    prompt: list[ConversationTurn]
    response_a: str
    response_b: str
    characters: tuple[int, int]
    pool: str
    label: str | None
    supports: Supports
    first: Side
    second: Side


@dataclass(frozen=True)
class ContradictionFilter:
    """Which contradictions: all pools or one, all or those that the label supports the one or the other in."""

    pool: str | None = None
    supports: Supports | None = None
    order: Order = "both"

    def __post_init__(self) -> None:
        if self.pool is not None and self.pool not in POOLS:
            raise BadInputError(f"{self.pool!r} is not one of {', '.join(POOLS)}", field="pool")
        for name, value, kind in (("supports", self.supports, Supports), ("order", self.order, Order)):
            if value is not None and value not in get_args(kind):
                raise BadInputError(f"{value!r} is not one of {', '.join(get_args(kind))}", field=name)


def known_annotators(db: Connection) -> list[KnownAnnotator]:
    """Reward models first, then by the number of their answers."""
    rows = db.execute(
        """SELECT annotator_id, kind, name, count(DISTINCT comparison_id)
           FROM opinions JOIN annotators USING (annotator_id) WHERE answer <> 'skip'
           GROUP BY annotator_id, kind, name
           ORDER BY kind <> 'reward_model', count(DISTINCT comparison_id) DESC, name"""
    ).fetchall()
    return [KnownAnnotator(*row) for row in rows]


def most_in_common(db: Connection, raters: Sequence[Rater]) -> tuple[Rater, Rater] | None:
    """Of the first `MOST_COUNTED`, the two different models that rated the most comparisons both; where no two did, any
    two raters. None where no comparison has two raters. One pass over scores and judgments, whatever their number."""
    counted = raters[:MOST_COUNTED]
    if len(counted) < 2:
        return None
    values: dict[str, str] = {}
    rows: list[str] = []
    for number, rater in enumerate(counted):
        names = [f"v{number}", f"t{number}", f"p{number}", f"a{number}"]
        rows.append(f"({number}, {', '.join('$' + name for name in names)})")
        rater_key = (rater.version, rater.template_hash, rater.principle, rater.annotator_id)
        values |= dict(zip(names, rater_key, strict=True))
    # Each comparison's raters as the bits of one number: few different ones, however many comparisons there are.
    counts = db.execute(
        f"""WITH raters(number, version, template, principle, annotator) AS (VALUES {", ".join(rows)}),
                 own AS MATERIALIZED (
                     SELECT response_id, number FROM scores JOIN raters r
                     ON model_version = r.version AND template_hash = r.template AND scores.principle = r.principle
                     WHERE reward IS NOT NULL AND r.annotator = ''),
                 rated AS (
                     SELECT comparison_id, a.number FROM comparisons c
                     JOIN own a ON a.response_id = c.response_a
                     JOIN own b ON b.response_id = c.response_b AND b.number = a.number
                     UNION ALL
                     SELECT comparison_id, number FROM opinions JOIN raters r ON annotator_id = r.annotator
                     WHERE answer <> 'skip')
            SELECT bits, count(*) FROM (
                SELECT bit_or(1::BIGINT << number) AS bits FROM rated GROUP BY comparison_id) GROUP BY bits""",
        values,
    ).fetchall()
    best, most = None, (False, 0)
    for i, one in enumerate(counted):
        for j, two in enumerate(counted[:i]):
            common = sum(count for bits, count in counts if bits >> i & bits >> j & 1)
            models = bool(one.version and two.version) and one.version != two.version
            if common and (models, common) > most:
                best, most = (two, one), (models, common)
    return best


def agreement_of(db: Connection, first: Rater, second: Rater) -> RaterAgreement:
    """Raises NotFoundError for a rater that said nothing."""
    names = first.name(db), second.name(db)
    common, values = _common(first, second)
    rows = db.execute(
        f"""WITH {common}
            SELECT count(*), count(*) FILTER (sign(m1) * sign(m2) > 0), count(*) FILTER (sign(m1) * sign(m2) < 0),
                   count(*) FILTER (m1 = 0 OR m2 = 0) FROM common""",  # count_if of no rows is NULL
        values,
    ).fetchall()
    both, agree, disagree, tied = rows[0]
    sides = db.execute(
        f"""WITH {common}, apart AS ({_APART}) SELECT supports, count(*) FROM apart GROUP BY supports""", values
    ).fetchall()
    decided = agree + disagree
    return RaterAgreement(
        *names,
        both,
        agree,
        disagree,
        tied,
        agree / decided if decided else None,
        wilson(agree, decided) if decided else None,
        {name: dict(sides).get(name, 0) for name in get_args(Supports)},
    )


def contradictions(
    db: Connection,
    first: Rater,
    second: Rater,
    which: ContradictionFilter,
    *,
    offset: int = 0,
    limit: int = 20,
    comparison_ids: Sequence[str] | None = None,
) -> tuple[list[Contradiction], int]:
    """A page, and how many there are. `comparison_ids`: of these alone."""
    common, values = _common(first, second)
    conditions = ["true"]
    if which.pool is not None:
        conditions.append("pool = $pool")
    if which.supports is not None:
        conditions.append("supports = $supports")
    if comparison_ids is not None:
        conditions.append("list_contains($ids, comparison_id)")
    parameters = {"pool": which.pool, "supports": which.supports, "ids": list(comparison_ids or ())}
    used = {name: value for name, value in parameters.items() if f"${name}" in " ".join(conditions)}
    key = {"both": "least(abs(s1), abs(s2))", "first": "abs(s1)", "second": "abs(s2)"}[which.order]
    rows = db.execute(
        f"""WITH {common}, apart AS ({_APART}),
                 page AS (SELECT *, count(*) OVER () AS total FROM apart WHERE {" AND ".join(conditions)}
                          ORDER BY {key} DESC, comparison_id LIMIT {int(limit)} OFFSET {int(offset)})
            SELECT d.comparison_id, p.messages, left(a.content, {SHOWN_CHARACTERS}),
                   left(b.content, {SHOWN_CHARACTERS}), length(a.content), length(b.content),
                   d.pool, d.label, d.supports, m1, s1, a1, b1, u1, v1, p1, m2, s2, a2, b2, u2, v2, p2,
                   total
            FROM page d JOIN prompts p ON p.prompt_id = d.prompt_id
            JOIN responses a ON a.response_id = d.response_a JOIN responses b ON b.response_id = d.response_b
            ORDER BY {key} DESC, d.comparison_id""",
        values | used,
    ).fetchall()
    curves = newest_calibrations(db)
    page = [
        Contradiction(
            row[0],
            [ConversationTurn(turn["role"], turn["content"]) for turn in row[1]],
            row[2],
            row[3],
            (row[4], row[5]),
            row[6],
            row[7],
            row[8],
            _side(first, curves, *row[9:16]),
            _side(second, curves, *row[16:23]),
        )
        for row in rows
    ]
    return page, rows[0][-1] if rows else 0


def queue_items(
    db: Connection, first: Rater, second: Rater, comparison_ids: Sequence[str], note: str
) -> list[QueueItem]:
    """Those pairs as items, the surest contradiction first. The reason says that two raters disagree, and the note, but
    not which raters: a rater may be the source itself. Raises BadInputError for a pair that they do not disagree on."""
    names = first.name(db), second.name(db)
    unique_ids = list(dict.fromkeys(comparison_ids))
    pairs, _ = contradictions(
        db, first, second, ContradictionFilter(), limit=len(unique_ids), comparison_ids=unique_ids
    )
    if missing := set(unique_ids) - {pair.comparison_id for pair in pairs}:
        raise BadInputError(f"{names[0]} and {names[1]} do not disagree on {min(missing)}", field="comparison_ids")
    reason = "two raters prefer different responses" + (f": {note.strip()}" if note.strip() else "")
    return [
        QueueItem(
            pair.comparison_id,
            min(abs(pair.first.relative_margin), abs(pair.second.relative_margin)),
            reason=reason,
            opinions=(_opinion(names[0], pair.first), _opinion(names[1], pair.second)),
        )
        for pair in pairs
    ]


_APART = """
    SELECT n.*, p.prompt_id, p.response_a, p.response_b, p.pool, p.label,
           CASE WHEN p.label NOT IN ('A', 'B') OR p.label IS NULL THEN 'unlabelled'
                WHEN (p.label = 'A') = (m1 > 0) THEN 'first' ELSE 'second' END AS supports
    FROM common n JOIN pools p USING (comparison_id) WHERE sign(m1) * sign(m2) < 0"""


def _common(first: Rater, second: Rater) -> tuple[str, dict[str, str]]:
    """Table expressions that end in `common`: margins m1, m2, both relative s1, s2, and what they are of."""
    (one, values), (two, more) = first.query("x"), second.query("y")
    expressions = f"""{first.scores("x")}{second.scores("y")}
        joined AS (SELECT x.comparison_id, x.margin AS m1, x.reward_a AS a1, x.reward_b AS b1, x.uncertainty_a AS u1,
                          x.uncertainty_b AS v1, x.confidence AS p1, y.margin AS m2, y.reward_a AS a2, y.reward_b AS b2,
                          y.uncertainty_a AS u2, y.uncertainty_b AS v2, y.confidence AS p2
                   FROM ({one}) x JOIN ({two}) y USING (comparison_id)),
        common AS (SELECT *, coalesce(m1 / nullif(sqrt(avg(m1 * m1) OVER ()), 0), 0) AS s1,
                          coalesce(m2 / nullif(sqrt(avg(m2 * m2) OVER ()), 0), 0) AS s2 FROM joined)"""
    return expressions, values | more


def _side(
    rater: Rater,
    curves: Mapping[str, Calibration],
    margin: float,
    relative: float,
    reward_a: float | None,
    reward_b: float | None,
    uncertainty_a: float | None,
    uncertainty_b: float | None,
    confidence: float | None,
) -> Side:
    probability = confidence
    if not rater.annotator_id and (calibration := curves.get(model_version(rater.version))) is not None:
        probability = calibration.of_difference(abs(margin))
    prefers: Literal["A", "B"] = "A" if margin > 0 else "B"
    return Side(margin, relative, prefers, probability, reward_a, reward_b, uncertainty_a, uncertainty_b)


def _opinion(name: str, side: Side) -> ShownOpinion:
    probability = f"{side.probability:.3f}" if side.probability is not None else None
    if side.reward_a is None:
        return ShownOpinion(name, side.prefers, f"confidence {probability or 'not said'}")
    return ShownOpinion(
        name, side.prefers, f"margin {abs(side.margin):.3g}" + (f", P {probability}" if probability else "")
    )
