"""Nearest-neighbour search: Assay's exact and approximate index beside faiss, NumPy and sentence-transformers.

One thread each, everything in memory, k = 8, clustered unit vectors of 384 places. Ratios are rates (queries a second),
ours to the peer's. `recall` is the share of the exact answer that the approximate index finds; `breaks_even` is how
many queries pay for building it. faiss's HNSW graph is measured beside it, because it is the usual choice.

    python benchmarks/retrieval.py --on-disk 1000000    # memory of the approximate index over so many vectors of a file
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from sentence_transformers.util import semantic_search
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from assay_pipelines.embedding.index import ApproximateIndex, ArrayVectors, ExactIndex, IndexConfig, Neighbours
from measure import Cost, Report, arguments, compare, peak_rss_mb, spent

MEASURES = ("pipelines/assay_pipelines/embedding/index.py",)

DIMENSION, K = 384, 8


def clustered(n: int, queries: int, seed: int = 0) -> tuple[Any, Any]:
    """Unit rows around n / 50 centres, and queries of the same make."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(n // 50, 1), DIMENSION), dtype=np.float32)

    def draw(count: int) -> Any:
        rows = centres[generator.integers(0, len(centres), count)]
        rows += 0.9 * generator.standard_normal((count, DIMENSION), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    return draw(n), draw(queries)


def recall(truth: Neighbours, neighbours: Neighbours) -> float:
    shared = sum(len({n for n, _ in a} & {n for n, _ in b}) for a, b in zip(truth, neighbours, strict=True))
    return shared / sum(len(answer) for answer in truth)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--on-disk", type=int, help="index so many vectors of a file, and nothing else")
    options = parser.parse_args()
    if options.on_disk:
        print(json.dumps(on_disk(options.on_disk, queries=500)))
        return
    n, queries = (30_000, 500) if options.quick else (200_000, 1_000)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    threadpool_limits(1)  # NumPy's
    rows, queries_matrix = clustered(n, queries)
    ids = [f"c-{i:09d}" for i in range(n)]
    vectors = ArrayVectors(ids, rows)
    exact = ExactIndex(vectors)
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(rows)

    def numpy_matrix() -> object:
        near = queries_matrix @ rows.T
        return np.argpartition(-near, K, axis=1)[:, :K]

    peers: dict[str, Callable[[], object]] = {
        "faiss IndexFlatIP": lambda: flat.search(queries_matrix, K),
        "sentence-transformers semantic_search": lambda: semantic_search(
            torch.from_numpy(queries_matrix), torch.from_numpy(rows), top_k=K
        ),
        "NumPy full matrix": numpy_matrix,
    }

    made: list[ApproximateIndex] = []
    build = spent(lambda: made.append(ApproximateIndex(vectors, IndexConfig()))).wall_s
    approximate = made[0]

    def searching(work: Callable[[], object]) -> Callable[[], Cost]:
        return lambda: spent(work, amount=queries, least_s=0.5)

    ours = {
        "exact": lambda: exact.nearest(queries_matrix, K),
        "approximate": lambda: approximate.nearest(queries_matrix, K),
    }
    contenders = {name: searching(work) for name, work in {**ours, **peers}.items()}
    compared = compare(contenders, options)
    truth = exact.nearest(queries_matrix, K)
    _, flat_answer = flat.search(queries_matrix, K)
    same = recall(truth, [[(ids[int(i)], 0.0) for i in row] for row in flat_answer])
    report = Report("retrieval", measures=MEASURES, peers=("faiss-cpu", "sentence-transformers"))
    for name in peers:
        report.ratios[f"exact / {name}"] = compared.ratio("exact", name)
    report.ratios["approximate / exact"] = compared.ratio("approximate", "exact")
    rates = {name: compared.per_second(name).median for name in contenders}
    per_query = 1 / rates["exact"] - 1 / rates["approximate"]
    report.figures = {
        "vectors": n,
        "queries": queries,
        "rates": {name: round(rate, 1) for name, rate in rates.items()},
        "agreement_with_faiss_flat": same,
        "recall_at_8": {
            f"probes {share}": recall(
                truth, ApproximateIndex(vectors, IndexConfig(probes=share)).nearest(queries_matrix, K)
            )
            for share in (0.02, 0.05, 0.1)
        },
        "build_s": round(build, 2),
        "breaks_even": round(build / per_query) if per_query > 0 else None,
        "hnsw": _hnsw(rows, queries_matrix, ids, truth),
        "peak_mb": round(peak_rss_mb()),
    }
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


class FileVectors:
    """Unit rows of a memory-mapped file."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.dimension = rows, int(rows.shape[1])
        self.ids = [f"c-{i:09d}" for i in range(len(rows))]

    def blocks(self, size: int) -> Iterator[tuple[Any, Any]]:
        for low in range(0, len(self.rows), size):
            part = np.array(self.rows[low : low + size])
            yield np.arange(low, low + len(part), dtype=np.int64), part

    def take(self, positions: Any) -> Any:
        return self.rows[positions]


def on_disk(n: int, queries: int) -> dict[str, Any]:
    """Build and ask the approximate index; how far the process's own memory (not that of mapped files, which can be
    evicted) rose above what it was before, and the recall."""
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = np.memmap(f"{folder}/rows", np.float32, "w+", shape=(n, DIMENSION))
        drawn, asked = clustered(min(n, 250_000), queries)
        generator = np.random.default_rng(1)
        for low in range(0, n, len(drawn)):  # the same clusters again, moved a little
            part = drawn[: n - low]
            part = part + 0.02 * generator.standard_normal(part.shape, dtype=np.float32)
            rows[low : low + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
        del drawn, part
        vectors = FileVectors(rows)
        before, peak, done = own_memory_mb(), [0.0], threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                peak[0] = max(peak[0], own_memory_mb())

        watching = threading.Thread(target=watch)
        watching.start()
        cpu = time.process_time()
        index = ApproximateIndex(vectors, IndexConfig())
        built = time.process_time() - cpu
        answers = index.nearest(asked, K)
        searched = time.process_time() - cpu - built
        done.set()
        watching.join()
        cpu = time.process_time()
        truth = ExactIndex(vectors).nearest(asked, K)
        return {
            "vectors": n,
            "own_memory_mb": round(peak[0] - before),
            "build_cpu_s": round(built, 1),
            "search_cpu_s": round(searched, 2),
            "exact_cpu_s": round(time.process_time() - cpu, 2),
            "recall_at_8": recall(truth, answers),
            "queries": queries,
        }


def own_memory_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon:")) * 1024 / 1e6


def _hnsw(rows: Any, queries: Any, ids: list[str], truth: Neighbours) -> dict[str, float]:
    graph = faiss.IndexHNSWFlat(DIMENSION, 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = 128, 64
    build = spent(lambda: graph.add(rows)).wall_s
    seconds = spent(lambda: graph.search(queries, K)).wall_s
    _, places = graph.search(queries, K)
    answer: Neighbours = [[(ids[int(i)], 0.0) for i in row if i >= 0] for row in places]
    return {"build_s": round(build, 2), "rate": round(len(queries) / seconds, 1), "recall_at_8": recall(truth, answer)}


if __name__ == "__main__":
    main()
