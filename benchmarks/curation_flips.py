"""How many wrong labels are found? HH-RLHF pairs with 20 % of their labels flipped, the flips known.

Ways to flag a label as wrong, each with precision and recall (a label that is flipped and flagged is found):

    at random            as many as the loop flags: precision is the share of flips
    shorter chosen       the chosen response is the shorter one
    reward model         a model of the other half of the prompts gives the label a probability of 1/2 or less
    loop                 stage 1 with people (here: the labels before flipping) on --people comparisons, then stage 2
                         (forced where it would be refused); flagged = changed or discarded. `loop, unseen`: without
                         what people were shown.

The reward model is a linear probe on SmolLM2's frozen features. Seeds change the flips and the draws; t intervals over
them. It needs the shared data (--data FOLDER) and, but for --quick, pip install 'assay[embed,demo]'.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay import ids
from assay.domain import Answer, Comparison, prompt_of, response_text
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_serving.scorer import ScoreItem
from curation_trials import LoopSettings, Row, cross_fitted, interval, precision_recall, run_loop, show_ci
from measure import Report, arguments

MEASURES = ("pipelines/assay_pipelines/curation",)

SETS = ("hh_helpful_base_test", "hh_harmless_base_test")
FLIPPED = 0.2
WAYS = ("at random", "shorter chosen", "reward model", "loop", "loop, unseen")


def read_rows(folder: Path, each: int, longest: int) -> tuple[list[Row], dict[str, Answer]]:
    """`each` pairs of every set, by hash, of conversations up to `longest` characters; and their labels."""
    rows: list[Row] = []
    truth: dict[str, Answer] = {}
    for name in SETS:
        first_votes: dict[str, tuple[Row, Answer]] = {}
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
            for line in stream:
                record = json.loads(line)
                chosen, rejected = record["chosen"], record["rejected"]
                length = sum(len(m["content"]) for m in record["prompt"]) + max(len(chosen), len(rejected))
                if chosen.strip() == rejected.strip() or not (chosen.strip() and rejected.strip()) or length > longest:
                    continue
                comparison, swapped = Comparison.of(prompt_of(record["prompt"]), chosen, rejected)
                sides = (comparison.response_a, comparison.response_b)
                row = Row(comparison.id, comparison.prompt_id, comparison.prompt, *map(response_text, sides))
                first_votes.setdefault(comparison.id, (row, "B" if swapped else "A"))
        for comparison_id in sorted(first_votes, key=ids.digest)[:each]:
            row, label = first_votes[comparison_id]
            if comparison_id not in truth:
                rows.append(row)
                truth[comparison_id] = label
    return rows, truth


def trial(
    rows: Sequence[Row], truth: Mapping[str, Answer], cache: FeatureCache, options: Any, seed: int
) -> tuple[dict[str, dict[str, float]], bool]:
    """Figures of every way; whether stage 2 would have been refused."""
    rng = random.Random(seed)
    flipped = set(rng.sample(sorted(truth), round(FLIPPED * len(truth))))
    turned: dict[Answer, Answer] = {"A": "B", "B": "A"}
    source = {c: turned[label] if c in flipped else label for c, label in truth.items()}
    groups = sorted({row.group for row in rows})
    rng.shuffle(groups)
    halves = {group: position % 2 == 0 for position, group in enumerate(groups)}
    p = cross_fitted(cache, rows, source, halves=halves)
    settings = LoopSettings(options.people, options.iterations, options.seed_silver)
    encoder = open_encoder(options.encoder, "cpu")
    done = run_loop(rows, source, {c: (label,) for c, label in truth.items()}, cache, encoder, settings, seed=seed)
    flagged = done.flagged(source)
    gold = {c for c, (pool, _) in done.labels.items() if pool == "gold"}
    shorter = {r.comparison_id for r in rows if len(r.pair(source[r.comparison_id]).chosen) < _other(r, source)}
    ways = {
        "at random": precision_recall(set(rng.sample(sorted(truth), len(flagged))), flipped),
        "shorter chosen": precision_recall(shorter, flipped),
        "reward model": precision_recall({c for c, q in p.items() if q <= 0.5}, flipped),
        "loop": precision_recall(flagged, flipped),
        "loop, unseen": precision_recall(flagged - gold, flipped - gold),
    }
    return ways, done.refused


def _other(row: Row, source: Mapping[str, Answer]) -> int:
    return len(row.pair(source[row.comparison_id]).rejected)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the shared data")
    parser.add_argument("--features", type=Path, default=None, help="workspace that keeps the features between runs")
    parser.add_argument("--base", default="smollm2", help="frozen backbone")
    parser.add_argument("--encoder", default="minilm", help="for retrieval")
    parser.add_argument("--each", type=int, default=500, help="pairs of the helpful and of the harmless set")
    parser.add_argument("--longest", type=int, default=1200, help="characters of a conversation")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--people", type=int, default=100, help="comparisons that people see")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seed-silver", type=int, default=200, help="source labels the loop begins with")
    options = parser.parse_args()
    if not (options.data / f"{SETS[0]}.jsonl.gz").is_file():
        sys.exit(f"skipped: no shared data at {options.data} (--data FOLDER)")
    if options.quick:
        options.base, options.encoder, options.each, options.seeds = "tiny", "hashing", 100, 2
        options.people, options.iterations, options.seed_silver = 30, 2, 50
    rows, truth = read_rows(options.data, options.each, options.longest)
    feature_store = Workspace.create(options.features) if options.features is not None else None
    cache = FeatureCache(FrozenBackbone(options.base, max_length=512, device="cpu"), feature_store)
    started = time.perf_counter()
    cache.of([ScoreItem(row.prompt, text) for row in rows for text in (row.a, row.b)])
    print(f"{len(rows)} pairs, features in {time.perf_counter() - started:.0f} s", flush=True)
    trials, refused = [], 0
    for seed in range(options.seeds):
        ways, worse = trial(rows, truth, cache, options, seed)
        trials.append(ways)
        refused += worse
        loop, model = trials[-1]["loop"], trials[-1]["reward model"]
        print(
            f"seed {seed}: loop precision {loop['precision']:.3f} recall {loop['recall']:.3f}, "
            f"reward model {model['precision']:.3f} {model['recall']:.3f}",
            flush=True,
        )
    by_way = {
        way: {key: interval([t[way][key] for t in trials]) for key in ("precision", "recall", "flagged")}
        for way in WAYS
    }
    print(f"\n{len(rows)} pairs, {FLIPPED:.0%} of the labels flipped, people see {options.people} comparisons")
    print(f"{'way':<16} {'flagged':>8}  {'precision':<22} recall")
    for way, figures in by_way.items():
        print(
            f"{way:<16} {figures['flagged'][0]:>8.0f}  {show_ci(figures['precision']):<22} {show_ci(figures['recall'])}"
        )
    print(f"stage 2 would be refused, as making labels worse, in {refused} of {len(trials)}; it is forced here\n")
    report = Report("curation_flips", measures=MEASURES)
    mean = {way: statistics.fmean(t[way]["precision"] for t in trials) for way in WAYS}
    report.ratios["precision: loop / at random"] = mean["loop"] / mean["at random"]
    report.ratios["precision: loop on unseen / shorter chosen"] = mean["loop, unseen"] / mean["shorter chosen"]
    keys = ("base", "encoder", "each", "longest", "seeds", "people", "iterations", "seed_silver")
    report.figures = {
        "settings": {key: getattr(options, key) for key in keys},
        "pairs": len(rows),
        "refused": refused,
        "ways": by_way,
    }
    report.finish(options)


if __name__ == "__main__":
    main()
