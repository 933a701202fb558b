"""The contamination ledger for display: the checks of each benchmark, and each overlap with both texts.

Leaves out: checking (`check`), how training uses the checks (`assay.runs.contamination_gate`).
"""

from dataclasses import dataclass

from assay.store.database import Connection
from assay_pipelines.curation.shown_pairs import CHARACTERS

MOST_COMPARISONS = 10  #: listed of a prompt


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """One finished check. `hits`: prompts and responses with an overlap; `responses` None: only prompts were checked.
    `stale`: texts have been imported since. `comparisons`: that have such a prompt or response; `discarded`: of
    them, now in that pool. `at`: seconds since the epoch."""

    check_id: str
    ngram: int
    unit: str
    prompts: int
    responses: int | None
    encoder: str
    hits: int
    comparisons: int
    discarded: int
    stale: bool
    run_id: str
    at: float


@dataclass(frozen=True, slots=True)
class LedgerWaiver:
    """A training run that was started in spite of the state."""

    run_id: str
    data: str
    state: str
    reason: str
    at: float


@dataclass(frozen=True)
class LedgerBenchmark:
    """A registered benchmark with its checks, the newest first."""

    benchmark: str
    content_hash: str
    prompts: int
    file: str
    checks: list[LedgerCheck]
    waivers: list[LedgerWaiver]


@dataclass(frozen=True, slots=True)
class OverlapComparison:
    """A comparison that has the prompt, and the pool it is in."""

    comparison_id: str
    pool: str


@dataclass(frozen=True)
class OverlapEvidence:
    """The overlap of one prompt, or response (`response_id`, `turn` 0, `role` response). `text`: our text,
    `benchmark_text`: the benchmark's prompt or response (`part`), both cut; `overlap`: words or characters in common,
    in lower case and without punctuation. `tier`: whole, containment, run or embedding; `score`: the share of the
    benchmark text that our text holds, or the similarity of embeddings. `ngrams`: runs in common."""

    prompt_id: str
    turn: int
    position: int
    role: str
    text: str
    benchmark_prompt_id: str
    benchmark_text: str
    overlap: str
    ngrams: int
    tier: str
    score: float
    part: str
    response_id: str | None
    comparisons: list[OverlapComparison]


_CHECKS = """
    WITH now AS (
        SELECT import_run, count(*) FILTER (kind = 'p') AS prompts, count(*) FILTER (kind = 'r') AS responses
        FROM (SELECT coalesce(run_id, '') AS import_run, 'p' AS kind FROM prompts
              UNION ALL SELECT coalesce(run_id, ''), 'r' FROM responses) GROUP BY 1),
    stale AS (
        SELECT k.check_id, bool_or((n.prompts > 0 AND v.prompts IS DISTINCT FROM n.prompts)
            OR (k.responses IS NOT NULL AND v.responses IS DISTINCT FROM n.responses)) AS stale
        FROM contamination_checks k CROSS JOIN now n
        LEFT JOIN contamination_coverage v ON v.check_id = k.check_id AND v.import_run = n.import_run GROUP BY 1),
    met AS (
        SELECT h.check_id, count(*) AS comparisons, count(*) FILTER (d.pool = 'discarded') AS discarded
        FROM (SELECT DISTINCT check_id, comparison_id FROM contaminated_comparisons) h
        LEFT JOIN (SELECT comparison_id, arg_max(pool, position) AS pool FROM decisions GROUP BY 1) d
            USING (comparison_id) GROUP BY 1)
    SELECT k.benchmark, k.check_id, k.ngram, k.unit, k.prompts, k.responses,
           coalesce(k.encoder, ''), coalesce(t.hits, 0), coalesce(m.comparisons, 0),
           coalesce(m.discarded, 0), coalesce(s.stale, false) OR k.benchmark_hash <> b.content_hash, k.run_id,
           epoch(k.created_at)
    FROM contamination_checks k JOIN benchmarks b USING (benchmark) LEFT JOIN stale s USING (check_id)
    LEFT JOIN met m USING (check_id)
    LEFT JOIN (SELECT check_id, count(*) AS hits FROM contamination_hits GROUP BY 1) t USING (check_id)
    ORDER BY k.created_at DESC, k.check_id"""
_HITS = f"""
    SELECT h.prompt_id, h.turn, h."position", if(h.response_id IS NULL, p.messages[h.turn].role, 'response'),
           if(h.response_id IS NULL, p.messages[h.turn].content, r.content)[:{CHARACTERS}],
           h.benchmark_prompt_id, coalesce(coalesce(h.benchmark_text, q.content)[:{CHARACTERS}], ''), h.overlap,
           h.ngrams, h.tier, coalesce(h.score, 1), h.part, h.response_id, count(*) OVER ()
    FROM contamination_hits h JOIN contamination_checks k USING (check_id) JOIN prompts p USING (prompt_id)
    LEFT JOIN responses r USING (response_id)
    LEFT JOIN benchmark_prompts q ON q.benchmark = k.benchmark AND q.prompt_id = h.benchmark_prompt_id
    WHERE h.check_id = $check ORDER BY h.ngrams DESC, h.prompt_id, h.response_id LIMIT $limit OFFSET $offset"""
_HAVING = f"""
    SELECT h.prompt_id, h.response_id,
        list({{'id': h.comparison_id, 'pool': coalesce(d.pool, 'unverified')}} ORDER BY h.comparison_id)
        [:{MOST_COMPARISONS}]
    FROM contaminated_comparisons h LEFT JOIN (
        SELECT comparison_id, arg_max(pool, position) AS pool FROM decisions GROUP BY 1) d USING (comparison_id)
    WHERE h.check_id = $check AND list_contains($prompts, h.prompt_id) GROUP BY 1, 2"""


def ledger(db: Connection) -> list[LedgerBenchmark]:
    """By name of the benchmark."""
    checks: dict[str, list[LedgerCheck]] = {}
    for benchmark, *row in db.execute(_CHECKS).fetchall():
        checks.setdefault(benchmark, []).append(LedgerCheck(*row))
    waivers: dict[str, list[LedgerWaiver]] = {}
    for benchmark, *row in db.execute(
        """SELECT benchmark, run_id, data, state, reason, epoch(created_at) FROM contamination_waivers
           ORDER BY created_at DESC"""
    ).fetchall():
        waivers.setdefault(benchmark, []).append(LedgerWaiver(*row))
    rows = db.execute("SELECT benchmark, content_hash, prompts, file FROM benchmarks ORDER BY benchmark").fetchall()
    return [
        LedgerBenchmark(name, content, prompts, file, checks.get(name, []), waivers.get(name, []))
        for name, content, prompts, file in rows
    ]


def evidence(db: Connection, check_id: str, *, limit: int, offset: int = 0) -> tuple[list[OverlapEvidence], int]:
    """A page of a check's overlaps, the largest first, and their total number."""
    rows = db.execute(_HITS, {"check": check_id, "limit": limit, "offset": offset}).fetchall()
    prompts = {"check": check_id, "prompts": [row[0] for row in rows]}
    having = {
        (prompt, response): [OverlapComparison(one["id"], one["pool"]) for one in overlaps]
        for prompt, response, overlaps in db.execute(_HAVING, prompts).fetchall()
    }
    shown = [OverlapEvidence(*(*fields, having.get((fields[0], fields[-1]), []))) for *fields, _ in rows]
    return shown, int(rows[0][-1]) if rows else 0
