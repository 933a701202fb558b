"""The funnel of a filter run, the failures of each extractor, the base rate of each principle."""

from dataclasses import asdict, dataclass, field
from typing import Any

from assay.errors import NotFoundError
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.principles.filtering import KEPT, STAGES

KIND = "principles-filter"


@dataclass(frozen=True)
class ExtractorCounts:
    """Counts of one extractor. `failed`: code -> feedback texts. `items_mean`, `items_sd`: per text read."""

    name: str
    read: int
    failed: dict[str, int]
    items: int
    items_mean: float | None
    items_sd: float | None

    @property
    def failure_rate(self) -> float | None:
        failed = sum(self.failed.values())
        return failed / (self.read + failed) if self.read + failed else None


@dataclass(frozen=True)
class PrincipleBaseRate:
    """An accepted principle: on how many responses it was judged, and how many fulfil it."""

    principle: str
    responses: int
    yes: int


@dataclass
class PrincipleReport:
    """`run`: the filter run of the stages and base rates; None before the first. `stated`: principle judgments that
    people made directly."""

    feedback: int
    stated: int
    readers: list[ExtractorCounts]
    run: str | None = None
    items: int = 0
    stages: dict[str, int] = field(default_factory=dict)  #: dropped, by stage, in order
    accepted: int = 0
    accepted_yes: int = 0
    principles: int = 0  #: different statements among the kept
    responses: int = 0
    per_feedback: float | None = None  #: kept items for each feedback text that was read
    base_rates: list[PrincipleBaseRate] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `kept` and `kept_yes` are the earlier names of `accepted` and `accepted_yes`."""
        return {**asdict(self), "kept": self.accepted, "kept_yes": self.accepted_yes}


def principle_report(workspace: Workspace, run: str | None = None, *, top: int = 20) -> PrincipleReport:
    """Of the latest finished filter run, or of `run`. `top`: how many principles are listed."""
    with workspace.store.unit() as db:
        report = PrincipleReport(
            feedback=_number(db, "SELECT count(*) FROM feedback"),
            stated=_number(db, "SELECT count(*) FROM standing_principle_judgments WHERE extractor IS NULL"),
            readers=_readers(db),
        )
        run = run or latest_run(db)
        if run is None:
            return report
        report.run = run
        stages = dict(
            db.execute("SELECT stage, count(*) FROM principle_outcomes WHERE run_id = ? GROUP BY 1", [run]).fetchall()
        )
        report.items = sum(stages.values())
        report.stages = {stage: stages.get(stage, 0) for stage in STAGES}
        rows = db.execute(
            """SELECT p.statement, count(DISTINCT j.response_id), count(*) FILTER (j.answer = 'yes')
               FROM principle_outcomes o JOIN standing_principle_judgments j USING (judgment_id)
               JOIN principles p USING (principle_id)
               WHERE o.run_id = ? AND o.stage = ? GROUP BY 1 ORDER BY 2 DESC, 1""",
            [run, KEPT],
        ).fetchall()
        report.accepted, report.accepted_yes = sum(n for _, n, _ in rows), sum(yes for _, _, yes in rows)
        report.principles = len(rows)
        report.base_rates = [PrincipleBaseRate(*row) for row in rows[:top]]
        report.responses, texts = db.execute(
            """SELECT count(DISTINCT j.response_id) FILTER (o.stage = 'kept'), count(DISTINCT j.feedback_id)
               FROM principle_outcomes o JOIN standing_principle_judgments j USING (judgment_id) WHERE o.run_id = ?""",
            [run],
        ).fetchall()[0]
        report.per_feedback = report.accepted / texts if texts else None
    return report


def latest_run(db: Connection) -> str | None:
    """Id of the latest finished filter run."""
    rows = db.execute(
        "SELECT run_id FROM runs WHERE kind = ? AND status = 'done' ORDER BY ended_at DESC, run_id DESC LIMIT 1", [KIND]
    ).fetchall()
    return str(rows[0][0]) if rows else None


def require_run(workspace: Workspace) -> str:
    """As `latest_run`; raises NotFoundError where nothing has been filtered yet."""
    with workspace.store.unit() as db:
        run = latest_run(db)
    if run is None:
        raise NotFoundError("no principles have been filtered yet: assay principles filter")
    return run


def extractors(workspace: Workspace) -> list[str]:
    """Extractors that have read feedback, the latest first."""
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT extractor FROM principle_extractions GROUP BY 1 ORDER BY max(created_at) DESC, 1"
        ).fetchall()
    return [name for (name,) in rows]


def _readers(db: Connection) -> list[ExtractorCounts]:
    rows = db.execute(
        """SELECT extractor, count(items), coalesce(sum(items), 0), avg(items), stddev_samp(items)
           FROM principle_extractions GROUP BY 1 ORDER BY 1"""
    ).fetchall()
    failed: dict[str, dict[str, int]] = {}
    for name, code, number in db.execute(
        """SELECT extractor, split_part(error, ':', 1), count(*) FROM principle_extractions
           WHERE error IS NOT NULL GROUP BY ALL ORDER BY 3 DESC, 2"""
    ).fetchall():
        failed.setdefault(name, {})[code] = number
    return [
        ExtractorCounts(name, read, failed.get(name, {}), int(items), mean, sd) for name, read, items, mean, sd in rows
    ]


def _number(db: Connection, query: str) -> int:
    return int(db.execute(query).fetchall()[0][0])
