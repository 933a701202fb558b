"""How far a workspace is on the way from a file to a policy, from counts that the store keeps anyway.

Counting rows of a table and of runs reads no texts. Leaves out: queues, jobs
and runs themselves (`routes`), the words (the page).
"""

from pydantic import BaseModel

from assay.store.database import Connection

HELD_OUT = "-holdout"  #: how `assay data snapshot --holdout` ends the name


class WorkspaceFigures(BaseModel):
    """`rejected`: rows that imports refused. `cleaned`, `deduplicated`, `decontaminated`, `decided`, `evaluated`: runs
    that ended well, of the stages, of deciding by votes, of evaluations. `newest_held_out`: of the newest training set
    that is not itself held out of another."""

    comparisons: int
    sources: int
    rejected: int
    cleaned: int
    deduplicated: int
    decontaminated: int
    benchmarks: int
    decided: int
    training_sets: int
    reward_models: int
    evaluated: int
    policies: int
    newest_set: str | None
    newest_held_out: str | None
    newest_model: str | None


def workspace_figures(db: Connection) -> WorkspaceFigures:
    """One short unit of the store."""
    row = db.execute(
        """SELECT (SELECT count(*) FROM comparisons),
                  (SELECT count(DISTINCT source) FROM origins),
                  (SELECT count(*) FROM rejects),
                  (SELECT count(*) FROM benchmarks),
                  (SELECT count(*) FROM snapshots)"""
    ).fetchall()[0]
    runs = dict(db.execute("SELECT kind, count(*) FROM runs WHERE status = 'done' GROUP BY kind").fetchall())
    artifacts = dict(db.execute("SELECT kind, count(DISTINCT name) FROM artifacts GROUP BY kind").fetchall())
    sets = [
        name for (name,) in db.execute("SELECT name FROM snapshots ORDER BY created_at DESC, name LIMIT 100").fetchall()
    ]
    newest = next((name for name in sets if not name.endswith(HELD_OUT)), None)
    models = db.execute(
        "SELECT name FROM artifacts WHERE kind = 'reward_model' ORDER BY created_at DESC LIMIT 1"
    ).fetchall()
    return WorkspaceFigures(
        comparisons=row[0],
        sources=row[1],
        rejected=row[2],
        cleaned=runs.get("clean", 0),
        deduplicated=runs.get("dedup", 0),
        decontaminated=runs.get("decontaminate", 0),
        benchmarks=row[3],
        decided=runs.get("queue-resolve", 0),
        training_sets=row[4],
        reward_models=artifacts.get("reward_model", 0),
        evaluated=runs.get("eval", 0),
        policies=artifacts.get("policy", 0),
        newest_set=newest,
        newest_held_out=f"{newest}{HELD_OUT}" if f"{newest}{HELD_OUT}" in sets else None,
        newest_model=models[0][0] if models else None,
    )
