"""What bulk work costs a row beside the model: the consistency pass and the embedding of a pool, by its size.

The engine is a stand-in of stated cost (a length in place of a reward, `ENGINE_S` seconds a response, which is neither
run nor slept but added), so that what is measured is the bookkeeping: export, shards, results, import. The cost a row
should not grow: the ratio is that of the largest pool over the smallest, in CPU seconds.

    python benchmarks/bulk_scale.py [--quick] [--sizes 50000 500000] [--json] [--save-baseline]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hygiene_scale import Source
from measure import Report, arguments, peak_rss_mb, run_child, versions

SIZES, QUICK_SIZES = (50_000, 500_000), (10_000, 50_000)
BATCH = 50_000
ENGINE_S = 0.001  #: a response: an 0.5B model on a GPU; a large one costs ten times that


class LengthScorer:
    """The stand-in: the reward is the length of the response in thousands of characters."""

    def __init__(self) -> None:
        from assay_serving.scorer import ModelInfo

        self.info = ModelInfo("length", "stand-in")

    def score(self, items: Sequence[Any], on_progress: Any = None) -> list[Any]:
        from assay.score import Score

        return [Score(len(item.response) / 1000, "length", "stand-in", "none", 1, False) for item in items]


def make(folder: Path, size: int) -> None:
    from assay.store.intake import store_pairs
    from assay.workspace import Workspace

    workspace, source = Workspace.create(folder), Source()
    for low in range(0, size, BATCH):
        batch = source.batch(low, min(low + BATCH, size))
        with workspace.store.unit() as db:
            store_pairs(db, batch, None)


def measured(folder: Path, size: int) -> dict[str, Any]:
    """Seconds, CPU seconds and peak memory of both stages on a new pool, in this process."""
    from assay.data.snapshots import Selection
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.curation.consistency import ConsistencyConfig, check_pool
    from assay_pipelines.embedding.hashing import HashingEncoder
    from assay_pipelines.embedding.stored import embed_comparisons
    from assay_pipelines.judging.reward_model import RewardModelJudge

    make(folder, size)
    workspace, pool, figures = Workspace.open(folder), Selection(("unverified",)), dict[str, Any]()
    with start_run(workspace, "bulk-scale", {}) as run:
        for stage in ("embedding", "consistency"):
            wall, cpu = time.perf_counter(), time.process_time()
            if stage == "embedding":
                rows = embed_comparisons(workspace, HashingEncoder(32), pool, run.id).embedded
            else:
                judge = RewardModelJudge(LengthScorer())
                rows = check_pool(run, [judge], ConsistencyConfig(), pool).seen
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if rows != size:
                raise RuntimeError(f"{stage}: {rows} of {size} rows")
            figures[stage] = {"seconds": wall, "cpu_s": cpu, "us_a_row": 1e6 * cpu / size}
    return figures | {"peak_mb": peak_rss_mb()}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of pairs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(Path(options.child), options.sizes[0])))
        return
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    report = Report(
        "bulk_scale", figures={"versions": versions("duckdb", "pyarrow"), "engine_s": ENGINE_S, "sizes": {}}
    )
    print(f"{'pairs':>9}  {'stage':<12}{'cpu us/row':>12}{'seconds':>10}{'with engine, us/row':>21}")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bulk-") as folder:
            command = [sys.executable, __file__, "--child", f"{folder}/workspace", "--sizes", str(size)]
            stages = run_child(command, timeout=7_200).last_object()
        report.figures["sizes"][size] = stages
        for stage in ("embedding", "consistency"):
            row, cost = stages[stage], stages[stage]["us_a_row"]
            columns = f"{cost:>12.0f}{row['seconds']:>10.1f}{cost + 2e6 * ENGINE_S:>21.0f}"
            print(f"{size:>9}  {stage:<12}{columns}", flush=True)
    for stage in ("consistency", "embedding"):
        small, large = (report.figures["sizes"][size][stage]["us_a_row"] for size in (sizes[0], sizes[-1]))
        with_engine = (large + 2e6 * ENGINE_S) / (small + 2e6 * ENGINE_S)
        report.ratios[f"{stage}_cost_a_row_at_{sizes[-1]}_over_{sizes[0]}"] = with_engine
        report.ratios[f"{stage}_bookkeeping_alone"] = large / small
    report.finish(options)


if __name__ == "__main__":
    main()
