"""What was wrong with the sources' labels, and how judges and people err: kinds of error, by rule, category, annotator.

Only labels of the pools gold, silver and recycled count. Decisions that an annotator made itself are left out of its
figures: a verifier's own gold, the votes that people's gold was made of.
"""

from dataclasses import dataclass

from assay.store.database import Connection

MOST_CATEGORIES = 30  #: the largest


@dataclass(frozen=True, slots=True)
class LabelErrors:
    """Of `decided` comparisons that the source labels A or B: `flipped` for the other side, `tied` as a tie; the
    others are confirmed. `settled`: those it left open that have a label now, which are not among `decided`. `name`:
    of the rule, or of the category ("" for none)."""

    name: str
    decided: int
    flipped: int
    tied: int
    settled: int


@dataclass(frozen=True, slots=True)
class AnswerErrors:
    """One annotator against gold, comparison by comparison. `right_sides` of the `right` are A or B; `flipped`: the
    other side. `tie_for_side`: a tie where gold prefers a side; `side_for_tie`: the other way round. `skipped`: no
    answer to what gold has one for."""

    kind: str
    annotator: str
    compared: int
    right: int
    right_sides: int
    flipped: int
    tie_for_side: int
    side_for_tie: int
    skipped: int


@dataclass(frozen=True)
class ErrorTypes:
    """Largest first."""

    by_rule: list[LabelErrors]
    by_category: list[LabelErrors]
    annotators: list[AnswerErrors]


# Once for all three tables: at a million comparisons this is most of the work.
_CONCLUDED = """
    CREATE OR REPLACE TEMP TABLE concluded AS
    SELECT d.comparison_id, d.pool, d.rule, d.label, s.label AS said
    FROM current_decisions d LEFT JOIN source_labels s USING (comparison_id)
    WHERE d.pool IN ('gold', 'silver', 'recycled') AND d.label IS NOT NULL"""
_GOLD = """
    CREATE OR REPLACE TEMP TABLE concluded AS
    SELECT comparison_id, pool, rule, label FROM current_decisions WHERE pool = 'gold' AND label IS NOT NULL"""
_COUNTS = """count(*) FILTER (said IN ('A', 'B')),
    count(*) FILTER (said IN ('A', 'B') AND label IN ('A', 'B') AND label <> said),
    count(*) FILTER (said IN ('A', 'B') AND label = 'tie'),
    count(*) FILTER (said IS NULL OR said NOT IN ('A', 'B'))"""
_BY_RULE = f"SELECT pool || ' by ' || rule, {_COUNTS} FROM concluded GROUP BY 1 ORDER BY 2 DESC, 1"
_BY_CATEGORY = f"""
    SELECT coalesce(o.category, ''), {_COUNTS} FROM concluded LEFT JOIN (
        SELECT comparison_id, min(category) AS category FROM origins GROUP BY comparison_id) o USING (comparison_id)
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MOST_CATEGORIES}"""
_ANNOTATORS = """
    WITH said AS (
        SELECT o.comparison_id, n.kind, n.name,
               CASE WHEN o.answer IN ('A', 'B', 'skip') THEN o.answer ELSE 'tie' END AS answer
        FROM opinions o JOIN annotators n USING (annotator_id)
        WHERE o.comparison_id IN (SELECT comparison_id FROM concluded WHERE pool = 'gold')
        QUALIFY row_number() OVER (
            PARTITION BY o.comparison_id, o.annotator_id ORDER BY o.created_at DESC, o.judgment_id) = 1)
    SELECT a.kind, a.name, count(*), count(*) FILTER (answer = label),
           count(*) FILTER (answer = label AND label IN ('A', 'B')),
           count(*) FILTER (answer IN ('A', 'B') AND label IN ('A', 'B') AND answer <> label),
           count(*) FILTER (answer = 'tie' AND label IN ('A', 'B')),
           count(*) FILTER (answer IN ('A', 'B') AND label = 'tie'),
           count(*) FILTER (answer = 'skip')
    FROM said a JOIN concluded d USING (comparison_id)
    WHERE NOT (d.rule = 'verifier' AND a.kind = 'verifier') AND NOT (d.rule <> 'verifier' AND a.kind = 'human')
    GROUP BY ALL ORDER BY a.kind, a.name"""


def error_types(db: Connection) -> ErrorTypes:
    db.execute(_CONCLUDED)
    return ErrorTypes(
        [LabelErrors(*row) for row in db.execute(_BY_RULE).fetchall()],
        [LabelErrors(*row) for row in db.execute(_BY_CATEGORY).fetchall()],
        [AnswerErrors(*row) for row in db.execute(_ANNOTATORS).fetchall()],
    )


def answer_errors(db: Connection) -> list[AnswerErrors]:
    """The annotators of `error_types` alone."""
    db.execute(_GOLD)
    return [AnswerErrors(*row) for row in db.execute(_ANNOTATORS).fetchall()]
