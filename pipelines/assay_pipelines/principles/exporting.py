"""Accepted principles as files in the fields of HelpSteer3-Principle, split by normalised prompt on request."""

from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInputError
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.hygiene.pair_keys import same_prompt
from assay_pipelines.principles.filtering import KEPT

FIELDS = ("domain", "language", "context", "response", "principle", "fulfilment")
FORMATS = {".jsonl": "FORMAT json", ".parquet": "FORMAT parquet, COMPRESSION zstd"}


@dataclass(frozen=True)
class ExportedFile:
    """Rows written, and the base rate of yes in them."""

    path: Path
    rows: int
    prompts: int
    yes: int


def export_principles(
    workspace: Workspace, run: str, path: Path, *, holdout: float = 0.0, seed: int = 0
) -> list[ExportedFile]:
    """Write PATH, and with `holdout` (the expected share of prompts) NAME.holdout.SUFFIX beside it.

    Rows are in the order of response and principle, so that the same store gives the same bytes. Raises BadInputError
    for an unknown ending or a share outside 0..1, and where nothing was kept.
    """
    if path.suffix not in FORMATS:
        raise BadInputError(f"the ending must be one of {', '.join(FORMATS)}, not {path.suffix!r}", file=path)
    if not 0 <= holdout < 1:
        raise BadInputError(f"is a share from 0 to below 1, not {holdout}", field="holdout")
    path = path.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {path: f"share >= {holdout!r}"}
    if holdout:
        parts[path.with_name(f"{path.stem}.holdout{path.suffix}")] = f"share < {holdout!r}"
    with workspace.store.unit() as db:
        _select(db, run, seed)
        if not db.execute("SELECT count(*) FROM chosen").fetchall()[0][0]:
            raise BadInputError(f"run {run} kept no principle: see assay principles report")
        files = [_write(db, target, condition) for target, condition in parts.items()]
        db.execute("DROP TABLE chosen").fetchall()
    return files


def _select(db: Connection, run: str, seed: int) -> None:
    # The origin of a response is its own, or that of the comparisons that contain it.
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE chosen AS
            WITH kept AS (
                SELECT j.response_id, p.statement AS principle, if(j.answer = 'yes', 'Yes', 'No') AS fulfilment
                FROM principle_outcomes o JOIN standing_principle_judgments j USING (judgment_id)
                JOIN principles p USING (principle_id) WHERE o.run_id = $run AND o.stage = $kept
            ), seen AS (
                SELECT response_id, category, language FROM response_origins
                UNION ALL
                SELECT unnest([c.response_a, c.response_b]), o.category, o.language
                FROM comparisons c JOIN origins o USING (comparison_id)
                WHERE c.response_a IN (SELECT response_id FROM kept) OR c.response_b IN (SELECT response_id FROM kept)
            ), described AS (
                SELECT response_id, min(category) AS category, min(language) AS language FROM seen GROUP BY 1
            )
            SELECT coalesce(d.category, 'general') AS domain, coalesce(d.language, '') AS language,
                   q.messages AS context, r.content AS response, k.principle, k.fulfilment, k.response_id, r.prompt_id,
                   ('0x' || left(sha256($seed || chr(31) || {same_prompt("q.messages")}), 12))::BIGINT / {16**12}.0
                       AS share
            FROM kept k JOIN responses r USING (response_id) JOIN prompts q USING (prompt_id)
            LEFT JOIN described d USING (response_id)""",
        {"run": run, "kept": KEPT, "seed": str(int(seed))},
    ).fetchall()


def _write(db: Connection, path: Path, condition: str) -> ExportedFile:
    target = str(path).replace("'", "''")
    db.execute(
        f"""COPY (SELECT {", ".join(FIELDS)} FROM chosen WHERE {condition} ORDER BY response_id, principle)
            TO '{target}' ({FORMATS[path.suffix]})"""
    ).fetchall()
    rows, prompts, yes = db.execute(
        f"""SELECT count(*), count(DISTINCT prompt_id), count(*) FILTER (fulfilment = 'Yes')
            FROM chosen WHERE {condition}"""
    ).fetchall()[0]
    return ExportedFile(path, rows, prompts, yes)
