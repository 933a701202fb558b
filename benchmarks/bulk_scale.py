"""What bulk work costs a row beside the model, by the pool's size: embedding, consistency, judges, attributes, hygiene.

The engine is a stand-in of stated cost (a length in place of a reward, an endpoint that answers at once), whose seconds
(`ENGINE_S` a row) are neither run nor slept but added, so that what is measured is the bookkeeping: export, shards,
results, import; rendered prompts, the journal of calls, answers. Near-duplicates and decontamination have no engine:
their cost is the work itself. The cost a row should not grow: the ratio is that of the largest pool over the smallest,
in CPU seconds.

    python benchmarks/bulk_scale.py [--quick] [--sizes 50000 500000] [--stages STAGE ...] [--json] [--save-baseline]
    python benchmarks/bulk_scale.py --sizes 50000 5000000 --folder BIG     # hours; resumes at the stage it was in
    python benchmarks/bulk_scale.py --beside 50000 500000 # what one shard's import costs beside so many results
    python benchmarks/bulk_scale.py --keys 40000000     # 7 GB of disk

Each stage runs in a process of its own, and is a line of BIG/stages.jsonl when it is done. `--folder` keeps the
workspaces (6 kB a pair), so that what is done is not done again; a stage that was killed resumes, is marked so, and
its seconds are those of the last process alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hygiene_scale import Source
from measure import Report, arguments, peak_rss_mb, run_child

MEASURES = (
    "platform/assay/compute",
    "platform/assay/store",
    "pipelines/assay_pipelines/embedding",
    "pipelines/assay_pipelines/curation",
    "pipelines/assay_pipelines/hygiene",
    "pipelines/assay_pipelines/judging",
    "pipelines/assay_pipelines/llm",
    "pipelines/assay_pipelines/principles",
    "pipelines/assay_pipelines/attributes",
)

SIZES, QUICK_SIZES = (50_000, 500_000), (10_000, 50_000)
BATCH, SHARD = 100_000, 10_000
#: A row: two responses of an 0.5B reward model on a GPU (a large one costs ten times that), a call of a judge at 50 a
#: second.
ENGINE_S = {"embedding": 0.002, "consistency": 0.002, "judging": 0.02, "attributes": 0.02, "principles": 0.02}
STAGES = (*ENGINE_S, "near_dup", "decontaminate")
FEEDBACK = """
    INSERT INTO feedback (feedback_id, response_id, annotator_id, content)
    SELECT 'f-' || md5(comparison_id), response_a, (SELECT min(annotator_id) FROM annotators), 'It has much detail.'
    FROM comparisons"""
REPLIES: dict[str, dict[str, Any]] = {
    "judging": {"reasoning": "It is longer. " * 20, "verdict": "1", "strength": 2, "confidence": 0.9},
    "attributes": {
        "task_category": "chat",
        "objectivity": "subjective",
        "controversiality": "low",
        "desired": "A helpful answer.",
        "guideline": "Prefer the longer one.",
    },
    "principles": {"items": [{"evidence": "much detail", "principle": "detailed", "fulfilment": "yes"}]},
}


class LengthScorer:
    """The stand-in: the reward is the length of the response in thousands of characters."""

    def __init__(self) -> None:
        from assay_serving.scorer import ModelInfo

        self.info = ModelInfo("length", "stand-in")

    def score(self, items: Sequence[Any], on_progress: Any = None) -> list[Any]:
        from assay.score import Score

        return [Score(len(item.response) / 1000, "length", "stand-in", "none", 1, False) for item in items]


def answer_at_once(reply: dict[str, Any]) -> None:
    """Chat endpoints of this process answer `reply` without a connection."""
    from assay_serving.chat.client import ANSWERED, ChatClient, ChatResult

    message = {"message": {"role": "assistant", "content": json.dumps(reply)}, "finish_reason": "stop"}
    payload = {"choices": [message], "usage": {"prompt_tokens": 500, "completion_tokens": 80}}

    async def post(self: ChatClient, body: Any) -> ChatResult:
        return ChatResult(ANSWERED, 200, payload)

    ChatClient.post = post  # type: ignore[method-assign]


def make(folder: Path, size: int) -> None:
    from assay.store.intake import store_pairs
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark

    workspace, source = Workspace.create(folder), Source()
    for low in range(0, size, BATCH):
        batch = source.batch(low, min(low + BATCH, size))
        with workspace.store.unit() as db:
            store_pairs(db, batch, None)
    (folder / "benchmark.txt").write_text("\n".join(source.benchmark_prompts()), encoding="utf-8")
    add_benchmark(workspace, "synthetic", folder / "benchmark.txt", None)


def measured(folder: Path, size: int, stage: str) -> dict[str, Any]:
    """Seconds, CPU seconds and peak memory of one stage on the pool of so many pairs, in this process."""
    from assay.compute.stage import abandoned_stages
    from assay.data.snapshots import Selection
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.attributes.extraction import AttributeExtractor, extract_attributes
    from assay_pipelines.curation.consistency import ConsistencyConfig, check_pool
    from assay_pipelines.embedding.hashing import HashingEncoder
    from assay_pipelines.embedding.stored import embed_comparisons
    from assay_pipelines.hygiene.contamination.check import CheckConfig, check_benchmarks
    from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig, find_near_duplicates
    from assay_pipelines.judging.asking import ask
    from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
    from assay_pipelines.judging.reward_model import RewardModelJudge
    from assay_pipelines.llm.configuration import EndpointConfig
    from assay_pipelines.llm.questions import iter_questions
    from assay_pipelines.principles.extraction import extract
    from assay_pipelines.principles.llm_extractor import LlmExtractor

    workspace, pool = Workspace.open(folder), Selection(("unverified", "silver"))
    endpoint = EndpointConfig("http://127.0.0.1:9/v1", "immediate", concurrency=64)
    judge, extractor = LlmJudge(LlmJudgeConfig(endpoint), workspace), AttributeExtractor(endpoint)
    keep_all = ConsistencyConfig(keep_above=0.0)  # so that every stage has the whole pool, whichever is first
    if stage == "principles":
        with workspace.store.unit() as db:
            db.execute(FEEDBACK)
    with start_run(workspace, "bulk-scale", {}) as run:
        work: dict[str, Callable[[], int]] = {
            "embedding": lambda: embed_comparisons(workspace, HashingEncoder(32), pool, run.id).embedded,
            "judging": lambda: sum(
                ask(workspace, judge, page, run.id).answered for page in iter_questions(workspace, pool)
            ),
            "attributes": lambda: sum(
                extract_attributes(workspace, extractor, page, run.id).answered
                for page in iter_questions(workspace, pool)
            ),
            "principles": lambda: extract(workspace, LlmExtractor(endpoint, workspace), run.id).read,
            "near_dup": lambda: find_near_duplicates(workspace, NearDuplicateConfig(), run.id).items,
            "decontaminate": lambda: check_benchmarks(workspace, CheckConfig(), run.id)[0].responses // 2,
            "consistency": lambda: check_pool(run, [RewardModelJudge(LengthScorer())], keep_all, pool).seen,
        }
        if stage in REPLIES:
            answer_at_once(REPLIES[stage])
        resumed = bool(abandoned_stages(workspace))
        wall, cpu = time.perf_counter(), time.process_time()
        rows = work[stage]()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if not resumed and not 0.99 * size <= rows <= size:  # a planted response may equal another
        raise RuntimeError(f"{stage}: {rows} of {size} rows")
    return {
        "size": size,
        "stage": stage,
        "seconds": wall,
        "cpu_s": cpu,
        "us_a_row": 1e6 * cpu / size,
        "peak_mb": peak_rss_mb(),
        "resumed": resumed,
    }


def stages_of(folder: Path, size: int, stages: Sequence[str], results: Path) -> Iterator[dict[str, Any]]:
    """The figures of each stage on the pool of so many pairs in `folder`; those that `results` has are not run."""
    finished = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, size)
        (folder / "made").touch()
    for stage in stages:
        figures = next((f for f in finished if (f["size"], f["stage"]) == (size, stage)), None)
        if figures is None:
            command = [sys.executable, __file__, "--child", str(folder), "--sizes", str(size), "--stages", stage]
            figures = run_child(command, timeout=24 * 3_600).last_object()
            with results.open("a") as lines:
                lines.write(json.dumps(figures) + "\n")
        yield figures


def imported(folder: Path, stored: int) -> dict[str, float]:
    """CPU microseconds a pair of what consistency and embedding write for a shard of new pairs, into tables that hold
    the results of `stored` others; the least of three, each rolled back."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    from assay import ids
    from assay.domain import Judgment
    from assay.score import Score
    from assay.store import records
    from assay.workspace import Workspace
    from assay_pipelines.embedding import stored as embedding

    Workspace.create(folder)
    filling = f"""
        INSERT INTO decisions (comparison_id, pool, label, rule, reason, run_id)
        SELECT 'c-' || md5(range::VARCHAR), 'silver', 'A', 'rm_consistent', repeat('p = 0.613 ', 6), 'r'
        FROM range({stored});
        INSERT INTO judgments (judgment_id, comparison_id, annotator_id, answer, run_id)
        SELECT 'j-' || md5(range::VARCHAR), 'c-' || md5(range::VARCHAR), 'a', 'A', 'r' FROM range({stored});
        INSERT INTO scores (response_id, model, model_version, template_hash, principle, reward, run_id)
        SELECT 'r-' || md5(range::VARCHAR), 'length', 'stand-in', 'none', '', 0.5, 'r' FROM range({2 * stored});
        INSERT INTO embeddings (ref, encoder, vector, digest, run_id)
        SELECT 'c-' || md5(range::VARCHAR), 'e', [random()::FLOAT FOR i IN range(32)], 'd', 'r' FROM range({stored});
        CHECKPOINT"""
    names = [ids.digest(f"new {number}") for number in range(2 * SHARD)]
    decisions = [records.Decision(name, "silver", "A", "rm_consistent", "p = 0.6") for name in names[:SHARD]]
    scores = [(name, Score(0.5, "length", "stand-in", "none", 1, False)) for name in names]
    judgments = [Judgment(name, "a", "A") for name in names[:SHARD]]
    flat = pa.array(np.random.default_rng(0).standard_normal(SHARD * 32, dtype=np.float32))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, SHARD * 32 + 1, 32, dtype=np.int32)), flat)
    vectors = pa.table({"ref": names[:SHARD], "vector": lists, "digest": names[:SHARD]})
    identity = {"model": "length", "version": "stand-in", "template_hash": "none"}
    with duckdb.connect(str(folder / "assay.duckdb"), config={"preserve_insertion_order": "false"}) as db:
        db.execute(filling)
        work: dict[str, Callable[[], object]] = {
            "decisions": lambda: records.insert_decisions(db, decisions, "new"),
            "judgments": lambda: records.insert_judgments(db, judgments, "new"),
            "scores": lambda: records.insert_scores(db, scores, **identity, run_id="new"),
            "embeddings": lambda: embedding._store(db, "e", vectors, "new"),
        }
        figures = {}
        for name, write in work.items():
            seconds = []
            for _ in range(3):
                db.execute("BEGIN")
                cpu = time.process_time()
                write()
                seconds.append(time.process_time() - cpu)
                db.execute("ROLLBACK")
            figures[name] = round(1e6 * min(seconds) / SHARD, 1)
    return figures


def joined(folder: Path, items: int) -> dict[str, Any]:
    """CPU seconds and peak memory of joining the bands of so many items by synthetic keys, one in a hundred of which
    has those of another."""
    import numpy as np

    from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig
    from assay_pipelines.hygiene.near_duplicates.sketches import BandFiles, banding, candidates

    chance, (bands, _) = np.random.default_rng(0), banding(NearDuplicateConfig().threshold)
    files = BandFiles(folder, bands)
    for low in range(0, items, BATCH):
        keys = chance.integers(0, 2**63, (min(BATCH, items - low), bands)).astype(np.uint64)
        keys[100::100] = keys[99:-1:100]
        files.add(keys)
    order, cpu = chance.permutation(items), time.process_time()
    pairs = len(candidates(files, order).first)
    return {
        "items": items,
        "bands": bands,
        "pairs": pairs,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": peak_rss_mb(),
    }


def sketched(folder: Path, items: int) -> dict[str, Any]:
    """CPU microseconds a row of near-duplicates' sketches in this process, the shards' reading and writing included,
    and its peak memory, before (the shards are written) and after. Rows of 60 words in three texts."""
    from dataclasses import replace

    from assay.compute.local import LocalExecutor
    from compute_cluster import sketching, write_shards

    units = [replace(unit, result=f"{unit.shard}.keys") for unit in write_shards(folder, items)]
    before, cpu = peak_rss_mb(), time.process_time()
    rows = sum(done.unit.rows for done in LocalExecutor().run(sketching(), units))
    seconds = time.process_time() - cpu
    size = sum(Path(unit.result).stat().st_size for unit in units)
    return {
        "rows": rows,
        "us_a_row": round(1e6 * seconds / rows, 2),
        "peak_mb": {"shards": before, "sketched": peak_rss_mb()},
        "bytes_a_row": round(size / rows, 1),
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of pairs")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES), help="those to run, in this order")
    parser.add_argument("--folder", type=Path, help="keep workspaces and results here, and resume")
    parser.add_argument("--keys", type=int, help="join near-duplicates' bands of so many items, and nothing else")
    parser.add_argument("--sketch", type=int, help="sketch so many rows for near-duplicates, and nothing else")
    parser.add_argument("--beside", type=int, nargs="+", help="import a shard beside so many results, and nothing else")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.keys:
        with tempfile.TemporaryDirectory(prefix="bands-") as folder:
            print(json.dumps(joined(Path(folder), options.keys)))
        return
    if options.sketch:
        with tempfile.TemporaryDirectory(prefix="sketches-") as folder:
            print(json.dumps(sketched(Path(folder), options.sketch)))
        return
    if options.beside:
        for stored in options.beside:
            with tempfile.TemporaryDirectory(prefix="beside-") as folder:
                print(json.dumps({"stored": stored, "us_a_pair": imported(Path(folder), stored)}), flush=True)
        return
    if options.child:
        print(json.dumps(measured(options.child, options.sizes[0], options.stages[0])))
        return
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    report = Report("bulk_scale", measures=MEASURES, figures={"engine_s": ENGINE_S, "sizes": {}})
    print(f"{'pairs':>9}  {'stage':<14}{'cpu us/row':>12}{'seconds':>10}{'with engine, us/row':>21}{'peak MB':>9}")
    with ExitStack() as stack:
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
        parent = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bulk-")))
        for size in sizes:
            report.figures["sizes"][size] = {}
            for row in stages_of(parent / str(size), size, options.stages, parent / "stages.jsonl"):
                stage, cost = row["stage"], row["us_a_row"]
                report.figures["sizes"][size][stage] = row
                columns = f"{cost:>12.0f}{row['seconds']:>10.1f}{cost + 1e6 * ENGINE_S.get(stage, 0):>21.0f}"
                print(f"{size:>9}  {stage:<14}{columns}{row['peak_mb']:>9.0f}", flush=True)
    for stage in options.stages:
        small, large = (report.figures["sizes"][size][stage]["us_a_row"] for size in (sizes[0], sizes[-1]))
        engine = 1e6 * ENGINE_S.get(stage, 0)
        with_engine = (large + engine) / (small + engine)
        report.figures[f"{stage}_cost_a_row_at_{sizes[-1]}_over_{sizes[0]}"] = round(with_engine, 3)
        report.figures[f"{stage}_bookkeeping_alone"] = round(large / small, 3)
    report.finish(options)


if __name__ == "__main__":
    main()
