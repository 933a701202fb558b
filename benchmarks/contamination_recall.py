"""Contamination: recall and precision on leaks planted over real benchmark prompts, by class, with 95 % intervals.

    python benchmarks/contamination_recall.py [--quick] [--json] [--part development|evaluation] [--encoder minilm]

Benchmarks: Arena-Hard v2, IFEval with GPT-4's responses, MT-bench, TruthfulQA, slices of RM-Bench and JudgeBench. Clean
rows: HH (helpful, harmless), OASST, UKP. Prompts, clean rows and carrier texts are split in two by hash; the thresholds
were chosen on the part `development`, figures are reported on `evaluation`. All benchmarks are registered whole.
Needs the shared data ($ASSAY_SHARED_DATA). `quick`: a fifth of the plants, without the encoder's tier.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Report, arguments, peak_rss_mb, versions
from planted_leaks import LEAKS, embedded, words

MEASURES = ("pipelines/assay_pipelines/hygiene/contamination",)

PLANTS, QUICK_PLANTS = 200, 40  #: of each class
SHORT = 13  #: prompts of fewer words are the class `short`
SHORTEST = 4  #: prompts of fewer words are planted verbatim alone
SEEDS = {"development": 11, "evaluation": 2027}
CLEAN = ("hh_helpful_base_test", "hh_harmless_base_test", "oasst1_en_val_pairs", "ukpconvarg1_pairs")
CLEAN_ROWS = 2_500  #: at most, of each source
NATIVE = "native"


@dataclass(frozen=True)
class BenchmarkRow:
    """One row of a benchmark file."""

    prompt: str
    responses: list[str]


def shared() -> Path:
    folder = Path(os.environ.get("ASSAY_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    if not folder.is_dir():
        sys.exit(f"no {folder}: set ASSAY_SHARED_DATA to the folder of the shared data")
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    return list(json.loads(text)) if text.startswith("[") else [json.loads(line) for line in text.split("\n") if line]


def benchmark_rows(folder: Path) -> dict[str, list[BenchmarkRow]]:
    """Benchmark -> its rows."""
    found: dict[str, list[BenchmarkRow]] = {}
    for name in ("arena_hard_v2_prompts", "ifeval_gpt4_responses", "mt_bench_questions", "truthfulqa_answers"):
        rows = lines(folder / f"{name}.jsonl.gz")
        keep = name == "ifeval_gpt4_responses"
        found[name] = [BenchmarkRow(r["prompt"][0]["content"], r["responses"] if keep else []) for r in rows]
    native = sorted((folder / NATIVE).glob("rm_bench_*.json.gz"))
    found["rm_bench"] = [BenchmarkRow(r["prompt"], r["chosen"] + r["rejected"]) for p in native for r in lines(p)]
    native = sorted((folder / NATIVE).glob("judgebench_*.jsonl.gz"))
    found["judgebench"] = [
        BenchmarkRow(r["question"], [r["response_A"], r["response_B"]]) for p in native for r in lines(p)
    ]
    return found


def part_of(text: str) -> str:
    return "development" if hashlib.sha256(text.encode()).digest()[0] % 2 else "evaluation"


def clean_rows(folder: Path, part: str) -> list[dict[str, Any]]:
    """Pairs of the part, `messages`, `first`, `second`, `source`."""
    rows = []
    for source in CLEAN:
        of_source = [
            {"messages": r["prompt"], "first": r["responses"][0], "second": r["responses"][1], "source": source}
            for r in lines(folder / f"{source}.jsonl.gz")
            if len(r["responses"]) > 1 and part_of("clean" + r["id"]) == part
        ]
        rows += of_source[:CLEAN_ROWS]
    return rows


def planted_rows(
    benchmarks: dict[str, list[BenchmarkRow]], clean: list[dict[str, Any]], part: str, size: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Class -> rows with one leak each, and how many prompts each class could have used."""
    chance = random.Random(SEEDS[part])
    rows = [r for of in benchmarks.values() for r in of if part_of(r.prompt) == part]
    rows = sorted({r.prompt: r for r in rows}.values(), key=lambda r: r.prompt)
    long = [r.prompt for r in rows if words(r.prompt) >= SHORT]
    short = [r.prompt for r in rows if SHORTEST <= words(r.prompt) < SHORT]
    carriers = sorted({r["first"] for r in clean if 8 <= words(r["first"]) <= 150})
    answered = sorted({text for r in rows for text in r.responses if words(text) >= 8})
    planted: dict[str, list[dict[str, Any]]] = {}

    def plant(kind: str, texts: list[str], place: str = "prompt") -> None:
        planted[kind] = []
        for text in texts[:size]:
            host = chance.choice(clean)
            row = {**host, "source": "planted"}
            if place == "prompt":
                row["messages"] = [{"role": "user", "content": text}]
            elif place == "late_turn":
                before = chance.choice([r for r in clean[:400] if len(r["messages"]) > 2] or clean)
                answer = {"role": "assistant", "content": host["second"]}
                row["messages"] = [*before["messages"], answer, {"role": "user", "content": text}]
            else:
                row[chance.choice(("first", "second"))] = text
            planted[kind].append(row)

    def applied(prompts: list[str], name: str) -> list[str]:
        shuffled = chance.sample(prompts, len(prompts))
        return [text for p in shuffled if (text := LEAKS[name](p, carriers, chance)) is not None]

    for name in LEAKS:
        plant(name, applied(long, name))
    for name in [name for name in LEAKS if name not in ("look_alikes", "markdown", "passage")]:
        plant(f"short_{name}", applied(short, name))
    plant("late_turn", applied(long + short, "verbatim"), "late_turn")
    plant("benchmark_response", chance.sample(answered, len(answered)), "response")
    plant(
        "prompt_in_response",
        [t for p in chance.sample(long, len(long)) if (t := embedded(p, carriers, chance))],
        "response",
    )
    return planted, {"prompts": len(rows), "long": len(long), "short": len(short), "responses": len(answered)}


def measure(part: str, size: int, encoder: str) -> dict[str, Any]:
    """Flagged and total rows of each class and each clean source; the rows that were missed or flagged wrongly."""
    import pyarrow as pa

    from assay.data.snapshots import POOLS, Selection
    from assay.store.intake import pair_schema, store_pairs
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark
    from assay_pipelines.hygiene.contamination.check import CheckConfig, check_benchmarks, discard_overlaps

    folder = shared()
    benchmarks, clean = benchmark_rows(folder), clean_rows(folder, part)
    planted, available = planted_rows(benchmarks, clean, part, size)
    with tempfile.TemporaryDirectory(prefix="contamination-") as temporary:
        workspace = Workspace.create(Path(temporary) / "ws")
        rows = [(f"clean:{row['source']}", row) for row in clean]
        rows += [(f"planted:{kind}", row) for kind, leaks in planted.items() for row in leaks]
        random.Random(0).shuffle(rows)
        for kind in sorted({kind for kind, _ in rows}):
            # a run for each kind: an equal comparison of two kinds keeps an origin of each
            batch = [
                {**row, "row": n, "label": "first", "source": kind, "record_id": f"{kind}:{n}"}
                for n, (of, row) in enumerate(rows)
                if of == kind
            ]
            with workspace.store.unit() as db:
                store_pairs(db, pa.Table.from_pylist(batch, schema=pair_schema()), f"import-{kind}")
        for name, of in benchmarks.items():
            file = Path(temporary) / f"{name}.jsonl"
            file.write_text("".join(json.dumps({"prompt": r.prompt, "responses": r.responses}) + "\n" for r in of))
            add_benchmark(workspace, name, file, None)
        config = CheckConfig(encoder=encoder or "")
        started = time.perf_counter()
        reports = check_benchmarks(workspace, config, "run-check")
        discard_overlaps(workspace, reports, config, Selection(POOLS), "run-check")
        seconds = time.perf_counter() - started
        with workspace.store.unit() as db:
            counts = db.execute(
                """SELECT o.source, count(DISTINCT o.record_id),
                          count(DISTINCT o.record_id) FILTER (d.comparison_id IS NOT NULL)
                   FROM origins o LEFT JOIN (SELECT DISTINCT comparison_id FROM decisions WHERE rule = 'contamination')
                   d USING (comparison_id) GROUP BY 1 ORDER BY 1"""
            ).fetchall()
            outcome = db.execute(
                """SELECT DISTINCT ON (o.record_id) o.source, d.reason, p.messages[-1].content, a.content, b.content
                   FROM origins o JOIN comparisons c USING (comparison_id) JOIN prompts p USING (prompt_id)
                   JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
                   LEFT JOIN (SELECT * FROM decisions WHERE rule = 'contamination') d USING (comparison_id)
                   WHERE starts_with(o.source, 'planted') = (d.reason IS NULL)"""
            ).fetchall()
    return {"counts": {k: (n, f) for k, n, f in counts}, "available": available, "seconds": seconds, "wrong": outcome}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", choices=tuple(SEEDS), default="evaluation")
    parser.add_argument("--encoder", default="", help="also the tier of embeddings, by this encoder")
    parser.add_argument("--wrong", type=Path, help="write the missed and the wrongly flagged rows to this file")
    options = parser.parse_args()
    from assay.statistics.intervals import wilson

    measured = measure(options.part, QUICK_PLANTS if options.quick else PLANTS, options.encoder)
    if options.wrong:
        options.wrong.write_text("".join(json.dumps(row) + "\n" for row in measured["wrong"]))
    report = Report(
        "contamination_recall", measures=MEASURES, figures={"part": options.part, "encoder": options.encoder or "none"}
    )
    report.figures |= {"versions": versions("polars", "rapidfuzz"), "available": measured["available"]}
    print(f"part {options.part}, {measured['available']}; {measured['seconds']:.1f} s, peak {peak_rss_mb():.0f} MB")
    totals: Counter[str] = Counter()
    print(f"{'rows':<34}{'flagged':>9}{'of':>7}{'share':>9}   95 % interval")
    for kind, (total, flagged) in measured["counts"].items():
        interval = wilson(flagged, total)
        report.figures[kind] = {"rows": total, "flagged": flagged, "low": interval.low, "high": interval.high}
        print(f"{kind:<34}{flagged:>9}{total:>7}{flagged / total:>9.3f}   {interval.low:.3f} to {interval.high:.3f}")
        side = kind.partition(":")[0]
        totals[side] += total
        totals[f"{side} flagged"] += flagged
    found, wrong = totals["planted flagged"], totals["clean flagged"]
    precision = wilson(found, found + wrong)
    print(f"precision on the mix: {found / max(found + wrong, 1):.3f} ({precision.low:.3f} to {precision.high:.3f})")
    print(f"clean rows flagged: {wrong} of {totals['clean']} ({wrong / totals['clean']:.4f})")
    report.ratios = {"recall": found / totals["planted"], "precision": found / max(found + wrong, 1)}
    report.ratios["clean_flagged"] = wrong / totals["clean"]
    report.finish(options)


if __name__ == "__main__":
    main()
