"""Checking the store's texts against registered benchmarks, and discarding what overlaps.

Every turn of every prompt and, unless told otherwise, every response is compared with the benchmarks' first-turn
prompts and with the responses that their files hold: by runs of `n` words in common (Skywork-Reward-V2 used n = 13; the
first Skywork-Reward's "more than 7 consecutive words" is n = 8), by equal short texts, by the share of a document's
information that a text holds (`evidence`), and, with an encoder, by similar embeddings (`jobs`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from assay import ids
from assay.compute.executor import Executor
from assay.compute.job import JobSpec
from assay.compute.local import LocalExecutor
from assay.compute.scratch_store import scratch
from assay.compute.stage import in_order, map_stage, open_stage
from assay.data.snapshots import POOLS, Selection
from assay.errors import NotFoundError
from assay.runs.progress_bar import Advance, silent
from assay.settings import CheckedSettings, Help
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.hygiene.contamination.benchmark_index import (
    BenchmarkIndex,
    PoolFrequencies,
    documents_of,
    read_documents,
)
from assay_pipelines.hygiene.contamination.candidates import EvidenceCandidates
from assay_pipelines.hygiene.contamination.evidence import Rule, common_from
from assay_pipelines.hygiene.contamination.jobs import PAGE as PAGE_METADATA
from assay_pipelines.hygiene.contamination.jobs import Matching, benchmark_files, read_index
from assay_pipelines.hygiene.contamination.pool_texts import (
    PAGE,
    Table,
    fingerprint,
    page_rows,
    sample_pages,
    text_rows,
)
from assay_pipelines.hygiene.discarding import discard
from assay_pipelines.hygiene.tokens import Unit, tokenise

if TYPE_CHECKING:
    import pyarrow as pa

RULE = "contamination"


@dataclass(frozen=True)
class CheckConfig(CheckedSettings):
    """What counts as an overlap, and with which benchmarks; empty = every registered one."""

    ngram: Annotated[int, Ge(1), Le(200), Help("So many consecutive units in common are an overlap.")] = 13
    unit: Annotated[Unit, Help("word, or character for scripts without spaces.")] = "word"
    containment: Annotated[
        float,
        Ge(0),
        Le(1),
        Help("So much of the information of a benchmark's text is an overlap. 0: shared runs alone, common or not."),
    ] = 0.6
    responses: Annotated[bool, Help("Check responses, too.")] = True
    encoder: Annotated[
        str, Help("Also compare prompts by the embeddings of this encoder, e.g. minilm. Empty: do not.")
    ] = ""
    similarity: Annotated[float, Ge(0), Le(1), Help("Least cosine similarity of embeddings.")] = 0.8
    benchmarks: Annotated[
        tuple[str, ...], Help("Registered benchmark; repeatable. Default: all of them.", option="--benchmark")
    ] = ()


@dataclass(frozen=True)
class CheckReport:
    """One benchmark's outcome: of `prompts` prompts and `responses` responses checked, `hits` and `response_hits`
    overlap; `comparisons` have such a prompt or response. `tiers`: hits by the kind of evidence."""

    benchmark: str
    content_hash: str
    check_id: str
    prompts: int
    hits: int
    comparisons: int
    responses: int = 0
    response_hits: int = 0
    tiers: dict[str, int] = field(default_factory=dict)


@dataclass
class _Seen:
    """Rows of each table by import."""

    prompts: Counter[str] = field(default_factory=Counter)
    responses: Counter[str] = field(default_factory=Counter)


def check_benchmarks(
    workspace: Workspace,
    config: CheckConfig,
    run_id: str,
    *,
    page: int = PAGE,
    advance: Advance = silent,
    executor: Executor | None = None,
) -> list[CheckReport]:
    """Check every text of the store, on shards. `advance` by prompts and responses. `executor`: None maps in this
    process. A check that is killed leaves no entry in the ledger; given again for the same pool, it resumes where it
    stopped.

    Raises NotFoundError for a benchmark that is not registered, and where none is; what `open_encoder` raises.
    """
    import pyarrow.parquet as pq

    with workspace.store.unit() as db:
        content_hashes = chosen_benchmarks(db, config.benchmarks)
        rows = read_documents(db, list(content_hashes))
    documents = documents_of(rows, content_hashes, config.unit)
    checks = ["k-" + ids.digest(f"{run_id}{ids.FIELD}{name}") for name in documents.names]
    tables: tuple[Table, ...] = ("prompts", "responses") if config.responses else ("prompts",)
    samples = {table: list(sample_pages(workspace, table)) for table in tables}
    frequencies = PoolFrequencies(documents, config.unit)
    for sampled in (one for sample in samples.values() for one in sample):
        frequencies.add(tokenise(sampled.texts, config.unit))
    sizes = {table: page_rows(sample, most=page) for table, sample in samples.items()}
    samples.clear()
    rule, seen, texts = Rule(config.ngram, config.containment), _Seen(), 0
    options = {name: getattr(config, name) for name in ("ngram", "unit", "containment", "encoder", "similarity")}
    question = {"pool": fingerprint(workspace, tables), "rows": sizes}

    def export() -> Iterator[pa.Table]:
        for table in tables:
            yield from text_rows(workspace, table, page=sizes[table])

    with benchmark_files(workspace, rows, content_hashes, frequencies) as folder, scratch(workspace) as temporary:
        spec = JobSpec(f"{Matching.__module__}:{Matching.__name__}", {"benchmarks": str(folder), **options})
        here = Matching(str(folder), **options) if executor is None else None
        if here is not None:
            here.open()
        index = here.index if here is not None else read_index(folder, rule, config.unit)
        candidates = EvidenceCandidates(temporary, index, rule)
        with open_stage(workspace, "decontaminate", spec, question, export) as stage:
            for unit in in_order(map_stage(stage, executor or LocalExecutor(), opened=here, advance=advance)):
                matches = pq.read_table(unit.result)
                about = json.loads(matches.schema.metadata[PAGE_METADATA])
                (seen.responses if about["responses"] else seen.prompts).update(about["imports"])
                texts += about["texts"]
                candidates.add(matches)
            candidates.store(workspace, checks, common_from(texts))
    with workspace.store.unit() as db:
        return [_finish(db, index, number, check, config, run_id, seen) for number, check in enumerate(checks)]


def discard_overlaps(
    workspace: Workspace, reports: Sequence[CheckReport], config: CheckConfig, selection: Selection, run_id: str
) -> dict[str, int]:
    """Discard the comparisons of the selection whose prompt or response overlaps; benchmark -> how many.

    Gold too: an overlap does not depend on judgments. A comparison restored after this rule had discarded it stays.
    """
    every = not selection.sources and not selection.categories and set(selection.pools) == set(POOLS)
    where, values = ("true", {}) if every else selection.where()
    discarded = {}
    for report in reports:
        discarded[report.benchmark] = 0
        if report.hits or report.response_hits:
            with workspace.store.unit() as db:
                rows = db.sql(
                    f"""SELECT h.comparison_id,
                            if(h.response_id IS NULL, 'turn ' || h.turn, 'response ' || h.response_id)
                            || CASE h.tier WHEN 'whole' THEN ' is'
                                WHEN 'run' THEN ', from {config.unit} ' || h.position
                                    || ' on, shares {config.ngram} {config.unit}s with'
                                WHEN 'embedding' THEN ' has an embedding of similarity ' || round(h.score, 2) || ' to'
                                ELSE ', from {config.unit} ' || h.position || ' on, holds '
                                    || round(100 * h.score)::INTEGER || ' % of' END
                            || if(h.part = 'prompt', '', ' a response to')
                            || ' prompt ' || h.benchmark_prompt_id || ' of ' || $benchmark || ': "' || h.overlap || '"'
                            AS reason, [{{'relation': 'overlaps', 'ref': h.benchmark_prompt_id}}] AS basis
                        FROM contaminated_comparisons h
                        {"" if every else "JOIN pools p USING (comparison_id)"}
                        WHERE h.check_id = $check AND {where}
                        QUALIFY row_number() OVER (PARTITION BY h.comparison_id
                            ORDER BY h.response_id NULLS FIRST, h.score DESC) = 1
                        ORDER BY h.comparison_id""",
                    params={**values, "check": report.check_id, "benchmark": report.benchmark},
                ).to_arrow_table()
            discarded[report.benchmark] = discard(workspace, rows, RULE, run_id, leave=())
    return discarded


def count_texts(workspace: Workspace, *, responses: bool) -> int:
    """Prompts of the store, and responses."""
    with workspace.store.unit() as db:
        row = db.execute(
            "SELECT (SELECT count(*) FROM prompts) + if(?, (SELECT count(*) FROM responses), 0)", [responses]
        ).fetchone()
    return int(row[0]) if row else 0


def chosen_benchmarks(db: Connection, names: Sequence[str]) -> dict[str, str]:
    """name -> content hash of the selected registered benchmarks: all, unless `names` are given. Raises NotFoundError
    where none is registered, and for an unknown name."""
    content_hashes = dict(db.execute("SELECT benchmark, content_hash FROM benchmarks ORDER BY benchmark").fetchall())
    if not content_hashes:
        raise NotFoundError("no benchmark is registered: assay data benchmarks add NAME FILE")
    for name in names:
        if name not in content_hashes:
            raise NotFoundError(f"no benchmark {name!r}; there are: {', '.join(content_hashes)}")
    return {name: digest for name, digest in content_hashes.items() if not names or name in names}


def _finish(
    db: Connection, index: BenchmarkIndex, number: int, check: str, config: CheckConfig, run_id: str, seen: _Seen
) -> CheckReport:
    name, content_hash = index.documents.names[number], index.documents.content_hashes[number]
    prompts, responses = seen.prompts.total(), seen.responses.total()
    counted = db.execute(
        "SELECT response_id IS NULL, tier, count(*) FROM contamination_hits WHERE check_id = ? GROUP BY 1, 2", [check]
    ).fetchall()
    hits = sum(count for of_prompt, _, count in counted if of_prompt)
    tiers: Counter[str] = Counter()
    for _, tier, count in counted:
        tiers[tier] += count
    imports = sorted({*seen.prompts, *seen.responses})
    if imports:
        db.executemany(
            "INSERT INTO contamination_coverage (check_id, import_run, prompts, responses) VALUES (?, ?, ?, ?)",
            [[check, run, seen.prompts[run], seen.responses[run] if config.responses else None] for run in imports],
        )
    db.execute(
        """INSERT INTO contamination_checks
               (check_id, benchmark, benchmark_hash, ngram, unit, prompts, hits, run_id, responses, encoder)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        [
            *(check, name, content_hash, config.ngram, config.unit, prompts, hits, run_id),
            *(responses if config.responses else None, config.encoder),
        ],
    )
    row = db.execute(
        "SELECT count(DISTINCT comparison_id) FROM contaminated_comparisons WHERE check_id = ?", [check]
    ).fetchone()
    comparisons = int(row[0]) if row else 0
    response_hits = sum(tiers.values()) - hits
    return CheckReport(
        name, content_hash, check, prompts, hits, comparisons, responses, response_hits, dict(sorted(tiers.items()))
    )
