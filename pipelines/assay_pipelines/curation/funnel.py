"""The data from its sources into the pools, by rule and reason, and the rows that were rejected."""

from dataclasses import dataclass

from assay.store.database import Connection
from assay_pipelines.curation.reliability.estimates import SourceReliability, reliabilities
from assay_pipelines.curation.shown_pairs import ShownPair, shown_pairs

#: The rule of undecided comparisons.
LABELLED, UNLABELLED = "label of the source", "no label"
SEVERAL, NOWHERE = "several sources", "no source"
REASONS = 3  #: examples of a rule


@dataclass(frozen=True, slots=True)
class FunnelFlow:
    """Comparisons of a source that a rule put into a pool. Each comparison is in one flow: of several sources it is in
    SEVERAL."""

    source: str
    pool: str
    rule: str
    comparisons: int


@dataclass(frozen=True, slots=True)
class RuleCount:
    """What a rule decided and holds. `reasons`: of its first decisions. `decided`: False for what nobody has decided,
    where the rule says what there is to go by."""

    pool: str
    rule: str
    decided: bool
    comparisons: int
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Rows that imports could not take, for one reason."""

    reason: str
    rows: int
    example: str


@dataclass(frozen=True)
class Funnel:
    """`comparisons`: all of them, each once. `reliability`: of sources, judges and people, on gold."""

    comparisons: int
    flows: list[FunnelFlow]
    rules: list[RuleCount]
    rejected: list[RejectedRows]
    reliability: list[SourceReliability]


_FLOWS = f"""
    WITH seen AS (
        SELECT comparison_id, if(min(source) = max(source), min(source), '{SEVERAL}') AS source
        FROM origins GROUP BY comparison_id)
    SELECT coalesce(o.source, '{NOWHERE}'), coalesce(d.pool, 'unverified'),
           CASE WHEN d.rule IS NOT NULL THEN d.rule WHEN s.label IS NULL THEN '{UNLABELLED}' ELSE '{LABELLED}'
                END AS rule,
           count(*)
    FROM comparisons c LEFT JOIN current_decisions d USING (comparison_id) LEFT JOIN seen o USING (comparison_id)
    LEFT JOIN source_labels s USING (comparison_id)
    GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3"""
_REASONS = f"""
    SELECT pool, rule, arg_min(reason, position, {REASONS}) FROM current_decisions GROUP BY pool, rule"""
_REJECTED = """
    SELECT reason, count(*), min(format('{} row {}', parse_filename(file), row)) FROM rejects
    GROUP BY reason ORDER BY 2 DESC, 1 LIMIT 50"""


def funnel(db: Connection) -> Funnel:
    """Reads every decision and every origin."""
    flows = [FunnelFlow(*row) for row in db.execute(_FLOWS).fetchall()]
    reasons = {(pool, rule): list(dict.fromkeys(examples)) for pool, rule, examples in db.execute(_REASONS).fetchall()}
    counts: dict[tuple[str, str], int] = {}
    for flow in flows:
        counts[flow.pool, flow.rule] = counts.get((flow.pool, flow.rule), 0) + flow.comparisons
    rules = [
        RuleCount(pool, rule, pool != "unverified", number, reasons.get((pool, rule), []))
        for (pool, rule), number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    rejected = [RejectedRows(*row) for row in db.execute(_REJECTED).fetchall()]
    return Funnel(sum(counts.values()), flows, rules, rejected, reliabilities(db).rows())


def decided_by(db: Connection, pool: str, rule: str, *, limit: int, offset: int = 0) -> tuple[list[ShownPair], int]:
    """A page of what a rule holds in a pool, the last decisions first, and how many there are."""
    rows = db.execute(
        """SELECT comparison_id, count(*) OVER () FROM current_decisions WHERE pool = $pool AND rule = $rule
           ORDER BY position DESC LIMIT $limit OFFSET $offset""",
        {"pool": pool, "rule": rule, "limit": limit, "offset": offset},
    ).fetchall()
    pairs = shown_pairs(db, [row[0] for row in rows])
    return [pairs[comparison] for comparison, _ in rows], int(rows[0][1]) if rows else 0
