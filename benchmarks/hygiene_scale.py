"""Hygiene at scale: exact dedup, decontamination and near-duplicates on synthetic pairs with planted ones.

Prints, for each size: comparisons a second, peak memory of the process and of the growth with size, how many of the
planted ones were found and whether anything else was; and the near-duplicate search against rensa alone (Python word
shingles, a matrix of sketches, one pass of LSH over the same texts: its fastest way), both in one run, in turns.

    python benchmarks/hygiene_scale.py [--quick] [--sizes 100000 1000000 5000000] [--json] [--save-baseline]

Each step runs in a process of its own. A pair has 200 words in all: 40 of prompt, 80 of each response.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Cost, Report, Rounds, arguments, compare, peak_rss_mb, run_child, spent

MEASURES = (
    "pipelines/assay_pipelines/hygiene",
    "platform/assay/store",
    "platform/assay/compute",
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SIZES, QUICK_SIZES = (100_000, 1_000_000, 5_000_000), (20_000,)
PHRASES, WORDS = 65_536, 4  # texts are drawn from so many phrases of so many words
PROMPT, RESPONSE = 10, 20  # phrases
BENCHMARK_PROMPTS = 1_000
BLOCK = 100  #: of each hundred pairs, so many are planted (the others are drawn anew)
DUPLICATES, NEAR, UNLIKE, LEAKS, MISSES = range(2), range(2, 7), range(7, 9), range(9, 10), range(10, 11)
BATCH = 50_000
RATIO_SIZE = 100_000  #: pairs of the comparison with rensa, where there are as many
STEPS = ("clean", "dedup", "decontaminate", "near_dup")


class Source:
    """Pairs by number, the same for the same number: drawn from phrases, and the planted variants of others."""

    def __init__(self) -> None:
        import numpy as np
        import pyarrow as pa

        chance = np.random.default_rng(0)
        words = chance.integers(0, 30_000, (PHRASES, WORDS))
        plain = [" ".join(f"word{w}" for w in row) for row in words]
        changed = [phrase.rsplit(" ", 1)[0] + " changed" for phrase in plain]
        leaks = [" ".join(f"leak{w}" for w in row) for row in chance.integers(0, 30_000, (PHRASES, WORDS))]
        self.phrases = pa.array([*plain, *changed, *leaks])
        self.benchmark = chance.integers(2 * PHRASES, 3 * PHRASES, (BENCHMARK_PROMPTS, PROMPT))

    def batch(self, low: int, high: int) -> pa.Table:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from assay.store.intake import pair_schema

        number = np.arange(low, high)
        role = number % BLOCK
        copied = np.isin(role, [*DUPLICATES, *NEAR, *UNLIKE])
        origin = np.where(copied, number + BLOCK // 2, number)  # the pair of the same hundred that it is a copy of
        drawn = self._draw(origin, PROMPT + 2 * RESPONSE)
        again = self._draw(number + 10**9, PROMPT + 2 * RESPONSE)
        near = np.isin(role, NEAR)
        for part in (0, PROMPT, PROMPT + RESPONSE):  # one word of each part
            drawn[near, part + number[near] % PROMPT] += PHRASES
        unlike = np.isin(role, UNLIKE)
        drawn[unlike, PROMPT + RESPONSE :] = again[unlike, PROMPT + RESPONSE :]
        prompt_text = self.benchmark[number // BLOCK % BENCHMARK_PROMPTS]
        leak, miss = np.isin(role, LEAKS), np.isin(role, MISSES)
        drawn[leak, 3:7] = prompt_text[leak, 2:6]  # 16 words of the benchmark's prompt
        drawn[miss, 3:6] = prompt_text[miss, 2:5]  # 12 words
        prompt = self._text(drawn[:, :PROMPT])
        duplicate = pa.array(np.isin(role, DUPLICATES))
        prompt = pc.if_else(duplicate, pc.replace_substring(pc.utf8_upper(prompt), " ", "  "), prompt)
        count = high - low
        turns = pa.StructArray.from_arrays([pa.array(["user"] * count), prompt], ["role", "content"])
        columns = {
            "row": pa.array(number + 1),
            "messages": pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), turns),
            "first": self._text(drawn[:, PROMPT : PROMPT + RESPONSE]),
            "second": self._text(drawn[:, PROMPT + RESPONSE :]),
            "label": pa.array(["first"] * count),
            "source": pa.array(["synthetic"] * count),
            "record_id": pa.array(number).cast(pa.string()),
        }
        schema = pair_schema()
        return pa.table([columns.get(f.name, pa.nulls(count)).cast(f.type) for f in schema], schema=schema)

    def benchmark_prompts(self) -> list[str]:
        return list(self._text(self.benchmark).to_pylist())

    def _draw(self, number: np.ndarray[Any, Any], phrases: int) -> np.ndarray[Any, Any]:
        import numpy as np

        value = number.astype(np.uint64)[:, None] * np.uint64(1_000_003) + np.arange(phrases, dtype=np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
        return ((value ^ (value >> np.uint64(31))) % np.uint64(PHRASES)).astype(np.int64)

    def _text(self, phrases: np.ndarray[Any, Any]) -> pa.Array:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        count, width = phrases.shape
        words = self.phrases.take(pa.array(phrases.ravel()))
        offsets = pa.array(np.arange(0, count * width + 1, width), pa.int32())
        return pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")


def make(folder: Path, size: int) -> dict[str, Any]:
    """A workspace with `size` pairs and the registered benchmark."""
    from assay.store.intake import store_pairs
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark

    workspace, source = Workspace.create(folder), Source()
    for low in range(0, size, BATCH):
        batch = source.batch(low, min(low + BATCH, size))
        with workspace.store.unit() as db:
            store_pairs(db, batch, None)
    file = folder / "benchmark.txt"
    file.write_text("\n".join(source.benchmark_prompts()) + "\n", encoding="utf-8")
    add_benchmark(workspace, "synthetic", file, None)
    return {"size": size, "store_mb": round((folder / "assay.duckdb").stat().st_size / 1e6)}


def step(name: str, folder: Path) -> dict[str, Any]:
    """One step on the workspace: seconds, and what it found of what was planted."""
    from assay.data.snapshots import POOLS, Selection
    from assay.workspace import Workspace

    workspace = Workspace.open(folder, wait=120)
    started, cpu = time.perf_counter(), time.process_time()
    if name == "clean":
        from assay_pipelines.hygiene.cleaning import CleanConfig, clean

        clean(workspace, CleanConfig(), "run-clean")
    elif name == "dedup":
        from assay_pipelines.hygiene.deduplication import dedup

        dedup(workspace, "run-dedup")
    elif name == "decontaminate":
        from assay_pipelines.hygiene.contamination.check import CheckConfig, check_benchmarks, discard_overlaps

        config = CheckConfig()
        reports = check_benchmarks(workspace, config, "run-decontaminate")
        discard_overlaps(workspace, reports, config, Selection(POOLS), "run-decontaminate")
    else:
        from assay_pipelines.hygiene.near_duplicates.search import (
            NearDuplicateConfig,
            discard_near_duplicates,
            find_near_duplicates,
        )

        near = NearDuplicateConfig()
        find_near_duplicates(workspace, near, "run-near_dup")
        discard_near_duplicates(workspace, near, "run-near_dup")
    seconds = time.perf_counter() - started
    cpu = time.process_time() - cpu
    peak = peak_rss_mb()
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT o.record_id::BIGINT % ? AS role, count(*) FROM decisions d JOIN origins o USING (comparison_id)
               WHERE d.run_id = ? GROUP BY role""",
            [BLOCK, f"run-{name}"],
        ).fetchall()
        total = int(db.execute("SELECT count(*) FROM comparisons").fetchall()[0][0])
    return {
        "seconds": seconds,
        "cpu_s": cpu,
        "peak_mb": peak,
        "discarded": {int(role): n for role, n in rows},
        "comparisons": total,
    }


def quality(name: str, figures: dict[str, Any]) -> tuple[float, float]:
    """(recall, precision) on what was planted. Of a pair and its copy either may go: roles 50 on are the originals."""
    planted = {"dedup": DUPLICATES, "decontaminate": LEAKS, "near_dup": NEAR}.get(name, range(0))
    gone = {int(role): n for role, n in figures["discarded"].items()}
    right = sum(n for role, n in gone.items() if role in planted or role - BLOCK // 2 in planted)
    expected = sum(len(range(role, figures["comparisons"], BLOCK)) for role in planted)
    everything = sum(gone.values())
    return (right / expected if expected else 1.0), (right / everything if everything else 1.0)


def run_step(name: str, folder: Path, timeout: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", name, "--workspace", str(folder)]
    return run_child(command, timeout=timeout).last_object()


def against_rensa(folder: Path, options: argparse.Namespace) -> Rounds:
    """The whole near-duplicate search, store and verification included, and rensa alone."""
    import rensa

    from assay.workspace import Workspace
    from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig, find_near_duplicates

    workspace = Workspace.open(folder)
    with workspace.store.unit() as db:
        texts = [
            row[0]
            for row in db.execute(
                """SELECT p.messages[1].content || ' ' || a.content || ' ' || b.content
                   FROM comparisons c JOIN prompts p USING (prompt_id)
                   JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b"""
            ).fetchall()
        ]
    turn = iter(range(1_000))

    def ours() -> None:
        report = find_near_duplicates(workspace, NearDuplicateConfig(), f"run-round-{next(turn)}")
        if report.items != len(texts):
            raise RuntimeError(f"{report.items} of {len(texts)} texts")

    def bare() -> None:
        words = (text.lower().split() for text in texts)
        shingles = (map(" ".join, zip(row, row[1:], row[2:], strict=False)) for row in words)
        matrix = rensa.RMinHash.digest_matrix_from_token_sets(shingles, 128, 42)
        rensa.RMinHashLSH(0.8, 128, 16).query_duplicate_flags_matrix_one_shot(matrix)

    def turns(work: Callable[[], None]) -> Callable[[], Cost]:
        return lambda: spent(work, amount=len(texts), least_s=0.3)

    return compare({"assay": turns(ours), "rensa": turns(bare)}, options, rounds=options.rounds, parts_left=2)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of pairs")
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison with rensa")
    parser.add_argument("--step", choices=("make", *STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        payload = make(options.workspace, options.sizes[0]) if options.step == "make" else None
        print(json.dumps(payload or step(options.step, options.workspace)))
        return
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    report = Report("hygiene_scale", measures=MEASURES, peers=("rensa",), figures={"steps": {}})
    titles = ("seconds", "cpu s", "pairs/s", "peak MB", "recall", "precision")
    print(f"{'pairs':>9}  {'step':<14}" + "".join(f"{title:>11}" for title in titles))
    headline: Rounds | None = None
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="hygiene-") as temporary:
        for size in sizes:
            folder = Path(temporary) / str(size)
            command = [sys.executable, __file__, "--step", "make", "--workspace", str(folder), "--sizes", str(size)]
            run_child(command, timeout=7_200)
            if size == min(sizes[-1], RATIO_SIZE) or (headline is None and size == sizes[-1]):
                headline = against_rensa(folder, options)
            for name in STEPS:
                measured = run_step(name, folder, 7_200)
                recall, precision = quality(name, measured)
                rate = size / measured["seconds"]
                rates.setdefault(name, []).append(size / measured["cpu_s"])  # others on the machine count less
                figures = {
                    "seconds": measured["seconds"],
                    "cpu_s": measured["cpu_s"],
                    "rate": rate,
                    "peak_mb": measured["peak_mb"],
                }
                report.figures["steps"][f"{name}_{size}"] = figures | {"recall": recall, "precision": precision}
                values = [f"{figures['seconds']:.1f}", f"{figures['cpu_s']:.1f}", f"{rate:.0f}"]
                values += [f"{figures['peak_mb']:.0f}", f"{recall:.4f}", f"{precision:.4f}"]
                print(f"{size:>9}  {name:<14}" + "".join(f"{cell:>11}" for cell in values), flush=True)
    assert headline is not None
    title = "near-duplicate search / rensa alone"
    report.ratios[title], report.limits[title] = headline.ratio("assay", "rensa"), 0.7
    report.figures["pairs_per_second"] = {name: str(headline.per_second(name)) for name in headline.costs}
    report.figures["pairs_per_cpu_s_by_size"] = {
        name: dict(zip(sizes, map(round, by_size), strict=True)) for name, by_size in rates.items()
    }
    report.finish(options)


if __name__ == "__main__":
    main()
