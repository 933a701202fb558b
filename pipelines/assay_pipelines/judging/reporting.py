"""Quality and cost of judges: agreement with gold and with each other, position bias, failures, cost.

Agreement with gold is stated twice, because published figures differ by it: over the comparisons where both the judge
and gold name a side (ties dropped), and over all with half a point where exactly one of the two says tie (ties count
half). A comparison that a judge decided itself is left out. Position bias: of the A/B votes whose order is known, the
share for the response shown first, with Wilson's 95 % interval; without bias 0.5. Order consistency: of the samples
asked in both orders, the share with the same answer in both.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from assay.statistics.agreement import cohen_kappa
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.llm.calls import fold_calls

KINDS = ("llm", "reward_model", "verifier", "simulated")


@dataclass(frozen=True)
class Share:
    """`hits` of `of`, with a 95 % interval; no share of nothing."""

    hits: float
    of: int

    def to_dict(self) -> dict[str, Any]:
        if not self.of:
            return {"hits": self.hits, "of": 0, "share": None, "low": None, "high": None}
        from assay.statistics.intervals import wilson

        interval = wilson(self.hits, self.of)
        share = self.hits / self.of
        return {"hits": self.hits, "of": self.of, "share": share, "low": interval.low, "high": interval.high}

    @property
    def text(self) -> str:
        figures = self.to_dict()
        if figures["share"] is None:
            return "-"
        return f"{100 * figures['share']:.1f} % ({100 * figures['low']:.0f}-{100 * figures['high']:.0f}, n {self.of})"


@dataclass(frozen=True)
class JudgeReport:
    """One judge. `outcomes`: attempts by outcome; `calls`: of them the distinct calls; `repeated`: attempts beyond the
    first of a call (retries and re-asks). `unreadable`: of the attempts that got a reply, those that were no answer."""

    annotator_id: str
    kind: str
    name: str
    opinions: int
    ties: int
    skips: int
    gold: Share
    gold_with_ties: Share
    first_shown: Share
    consistent: Share
    outcomes: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    repeated: int = 0
    unreadable: Share = field(default_factory=lambda: Share(0, 0))
    refused: Share = field(default_factory=lambda: Share(0, 0))
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    seconds: float | None = None  #: median of the attempts that were answered

    def to_dict(self) -> dict[str, Any]:
        return {name: value.to_dict() if isinstance(value, Share) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class JudgeAgreement:
    """Two judges over the comparisons on which both name a side. `kappa`: Cohen's, None where chance leaves no room."""

    first: str
    second: str
    both: int
    agreed: int
    kappa: float | None


@dataclass(frozen=True)
class JudgesReport:
    judges: tuple[JudgeReport, ...]
    agreements: tuple[JudgeAgreement, ...]
    other_tasks: dict[str, dict[str, Any]]  #: attributes, correctness: attempts and cost by task and model

    def to_dict(self) -> dict[str, Any]:
        return {
            "judges": [judge.to_dict() for judge in self.judges],
            "agreements": [asdict(agreement) for agreement in self.agreements],
            "other_tasks": self.other_tasks,
        }


def judges_report(workspace: Workspace) -> JudgesReport:
    """Reads the whole store; calls that ended processes left behind are folded in first."""
    fold_calls(workspace)
    with workspace.store.unit() as db:
        db.execute(_NEWEST)
        judges = _judges(db)
        agreements = [
            JudgeAgreement(first, second, sum(cells), cells[0] + cells[3], cohen_kappa([cells[:2], cells[2:]]))
            for first, second, *cells in db.execute(_PAIRS).fetchall()
        ]
        other = {
            f"{task} by {name}": dict(zip(_OTHER_COLUMNS, row, strict=True))
            for task, name, *row in db.execute(_OTHER).fetchall()
        }
        db.execute("DROP TABLE newest")
    return JudgesReport(tuple(judges), tuple(agreements), other)


_SIDE = "CASE WHEN {0} IN ('A', 'B') THEN {0} WHEN {0} = 'skip' THEN NULL ELSE 'tie' END"

_NEWEST = f"""
    CREATE OR REPLACE TEMP TABLE newest AS
    SELECT o.comparison_id, o.annotator_id, n.kind, n.name, o.answer, {_SIDE.format("o.answer")} AS side
    FROM opinions o JOIN annotators n USING (annotator_id)
    WHERE list_contains({list(KINDS)}, n.kind)
    QUALIFY row_number() OVER (
        PARTITION BY o.comparison_id, o.annotator_id ORDER BY o.created_at DESC, o.judgment_id) = 1"""

_OPINIONS = """
    SELECT w.annotator_id, w.kind, w.name, count(*), count(*) FILTER (side = 'tie'),
           count(*) FILTER (w.answer = 'skip'),
           count(*) FILTER (side = d.label AND d.label IN ('A', 'B')),
           count(*) FILTER (side IN ('A', 'B') AND d.label IN ('A', 'B')),
           coalesce(sum(CASE WHEN side = d.label THEN 1.0 WHEN 'tie' IN (side, d.label) THEN 0.5 ELSE 0 END)
                    FILTER (side IS NOT NULL AND d.label IS NOT NULL), 0),
           count(*) FILTER (side IS NOT NULL AND d.label IS NOT NULL)
    FROM newest w
    LEFT JOIN current_decisions d ON d.comparison_id = w.comparison_id AND d.pool = 'gold'
         AND NOT (d.rule = 'verifier' AND w.kind = 'verifier')
    GROUP BY ALL ORDER BY w.kind, w.name"""

# A judge's votes, or its opinion where that is its only vote.
_FIRST = """
    SELECT annotator_id, count(*) FILTER ((answer = 'A') = (shown_order = 'AB')), count(*)
    FROM standing_judgments WHERE answer IN ('A', 'B') AND shown_order IS NOT NULL GROUP BY 1"""

_CONSISTENT = r"""
    SELECT annotator_id, count(*) FILTER (ab = ba), count(*) FROM (
        SELECT annotator_id, comparison_id, regexp_replace(origin, '/(AB|BA)/([0-9]+)$', '/\2') AS occasion_and_sample,
               min(answer) FILTER (shown_order = 'AB') AS ab, min(answer) FILTER (shown_order = 'BA') AS ba
        FROM standing_judgments WHERE starts_with(origin, 'vote/') AND shown_order IS NOT NULL GROUP BY ALL
    ) WHERE ab IS NOT NULL AND ba IS NOT NULL GROUP BY 1"""

_CALLS = """
    SELECT annotator_id, count(DISTINCT call_key), count(*) FILTER (attempt > 1),
           count(*) FILTER (outcome IN ('bad_answer', 'truncated')), count(*) FILTER (outcome = 'refused'),
           count(*) FILTER (status = 200 AND response IS NOT NULL), coalesce(sum(tokens_in), 0)::BIGINT,
           coalesce(sum(tokens_out), 0)::BIGINT, sum(cost), median(seconds) FILTER (outcome = 'answered')
    FROM model_calls WHERE task = 'judge' GROUP BY 1"""

_PAIRS = """
    SELECT a.name, b.name,
           count(*) FILTER (a.side = 'A' AND b.side = 'A'), count(*) FILTER (a.side = 'A' AND b.side = 'B'),
           count(*) FILTER (a.side = 'B' AND b.side = 'A'), count(*) FILTER (a.side = 'B' AND b.side = 'B')
    FROM newest a JOIN newest b ON a.comparison_id = b.comparison_id AND a.name < b.name
    WHERE a.side IN ('A', 'B') AND b.side IN ('A', 'B') GROUP BY ALL ORDER BY 1, 2"""

_OTHER_COLUMNS = ("calls", "attempts", "answered", "unreadable", "refused", "tokens_in", "tokens_out", "cost")
_OTHER = """
    SELECT task, name, count(DISTINCT call_key), count(*), count(*) FILTER (outcome = 'answered'),
           count(*) FILTER (outcome IN ('bad_answer', 'truncated')), count(*) FILTER (outcome = 'refused'),
           coalesce(sum(tokens_in), 0)::BIGINT, coalesce(sum(tokens_out), 0)::BIGINT, sum(cost)
    FROM model_calls JOIN annotators USING (annotator_id) WHERE task <> 'judge' GROUP BY ALL ORDER BY 1, 2"""


def _judges(db: Connection) -> list[JudgeReport]:
    first = {row[0]: Share(row[1], row[2]) for row in db.execute(_FIRST).fetchall()}
    consistent = {row[0]: Share(row[1], row[2]) for row in db.execute(_CONSISTENT).fetchall()}
    calls = {row[0]: row[1:] for row in db.execute(_CALLS).fetchall()}
    outcomes: dict[str, dict[str, int]] = {}
    for annotator, outcome, number in db.execute(
        "SELECT annotator_id, outcome, count(*) FROM model_calls WHERE task = 'judge' GROUP BY ALL ORDER BY 3 DESC, 2"
    ).fetchall():
        outcomes.setdefault(annotator, {})[outcome] = number
    rows = {row[0]: row for row in db.execute(_OPINIONS).fetchall()}
    for annotator, kind, name in db.execute(
        f"SELECT annotator_id, kind, name FROM annotators WHERE list_contains({list(KINDS)}, kind) ORDER BY 2, 3"
    ).fetchall():
        if annotator in calls and annotator not in rows:  # asked, and never answered
            rows[annotator] = (annotator, kind, name, 0, 0, 0, 0, 0, 0.0, 0)
    reports = []
    for annotator, kind, name, total, ties, skips, right, compared, points, all_compared in rows.values():
        distinct_calls, repeated, unreadable, refused, replies, tokens_in, tokens_out, cost, seconds = calls.get(
            annotator, (0, 0, 0, 0, 0, 0, 0, None, None)
        )
        reports.append(
            JudgeReport(
                annotator,
                kind,
                name,
                total,
                ties,
                skips,
                Share(right, compared),
                Share(float(points), all_compared),
                first.get(annotator, Share(0, 0)),
                consistent.get(annotator, Share(0, 0)),
                outcomes.get(annotator, {}),
                distinct_calls,
                repeated,
                Share(unreadable, replies),
                Share(refused, replies),
                tokens_in,
                tokens_out,
                cost,
                seconds,
            )
        )
    return reports
