"""Does the curation loop help? UKPConvArg1: five people's votes on each pair of arguments, the majority taken as truth.

One vote of each pair, drawn by seed, plays the noisy source; the others play the people, within a budget. Debates are
split, never rows. Every arm trains the same reward model, a linear probe on SmolLM2's frozen features with its penalty
chosen by cross-validation on that arm's own labels, and is measured on the debates held out:

    raw                  every source label
    filtered             raw, less what a reward model of the other half of the debates contradicts; nobody is asked
    people only          comparisons drawn at random, as many as the loop may show to people; nothing else
    raw + people         raw, with those random comparisons corrected by people
    raw + loop's people  raw, with the comparisons that the loop put before people corrected: its choice against chance
    loop                 stage 1, then stage 2: people see what lies around the model's errors; gold + silver
    loop + recycled      the same, with what stage 2 discarded and both models contradict, flipped

Reported: accuracy with its spread over seeds (split, source votes and draws all change), paired differences with
t intervals, the length baseline, label noise before and after, and precision and recall of the errors found.
It needs the shared data (--data FOLDER) and, but for --quick, pip install 'assay[embed,demo]'. Features take minutes
once; --features keeps them for the next run.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.annotation.votes import MAJORITY, preference, tally
from assay.domain import Answer, Comparison, PreferencePair, prompt_of, response_text
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_serving.scorer import ScoreItem
from curation_trials import LoopSettings, Row, cross_fitted, fit, interval, precision_recall, run_loop, show_ci
from measure import Report, arguments

MEASURES = ("pipelines/assay_pipelines/curation",)

SET = "ukpconvarg1_pairs.jsonl.gz"
HELD_OUT = 6  # of 24 debates
ARMS = ("raw", "filtered", "people only", "raw + people", "raw + loop's people", "loop", "loop + recycled")


@dataclass(frozen=True)
class VotedRow(Row):
    """With the votes of its people, in A/B of the canonical order."""

    votes: tuple[Answer, ...] = ()

    @property
    def truth(self) -> str | None:
        """The answer of more people than any other; None where there is none."""
        (first, most), *runners_up = Counter(self.votes).most_common()
        return None if runners_up and runners_up[0][1] == most else first


@dataclass(frozen=True)
class Scenario:
    """One draw: who is held out, which vote of each pair is the source's, and what is left for people."""

    train: Sequence[VotedRow]
    test: Sequence[PreferencePair]
    source: Mapping[str, Answer]
    people: Mapping[str, tuple[Answer, ...]]


def read_rows(path: Path) -> list[VotedRow]:
    rows: dict[str, VotedRow] = {}
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            record = json.loads(line)
            first, second = record["responses"]
            if first.strip() == second.strip():
                continue
            prompt = prompt_of(record["prompt"])
            comparison, swapped = Comparison.of(prompt, first, second)
            turn = {"A": "B", "B": "A"} if swapped else {}
            votes = tuple(turn.get(v["value"], v["value"]) for v in record["ratings"]["votes"])
            row = VotedRow(
                comparison.id,
                record["category"],
                prompt,
                response_text(comparison.response_a),
                response_text(comparison.response_b),
                votes,
            )
            rows.setdefault(row.comparison_id, row)
    return list(rows.values())


def scenario(rows: Sequence[VotedRow], seed: int, *, limit: int | None) -> Scenario:
    rng = random.Random(seed)
    debates = sorted({row.group for row in rows})
    rng.shuffle(debates)
    held_out = set(debates[:HELD_OUT])
    train = [row for row in rows if row.group not in held_out]
    if limit is not None:
        train = rng.sample(train, min(limit, len(train)))
    test = [row.pair(row.truth) for row in rows if row.group in held_out and row.truth in ("A", "B")]
    source, people = {}, {}
    for row in train:
        votes = list(row.votes)
        rng.shuffle(votes)
        source[row.comparison_id], people[row.comparison_id] = votes[0], tuple(votes[1:])
    return Scenario(train, test, source, people)


class Trial:
    """One seed: its arms share the features and the test debates."""

    def __init__(self, scenario: Scenario, cache: FeatureCache, options: Any, seed: int) -> None:
        self.scenario, self.cache, self.options, self.seed = scenario, cache, options, seed
        self.by_id = {row.comparison_id: row for row in scenario.train}
        self.accuracy: dict[str, float] = {}
        self.figures: dict[str, Any] = {}

    def run(self) -> None:
        raw = {c: label for c, label in self.scenario.source.items() if label in ("A", "B")}
        drawn = random.Random(self.seed + 1000).sample(sorted(self.scenario.people), self.options.people)
        corrected = {
            c: tally([preference(a) for a in self.scenario.people[c]], threshold=MAJORITY).winner for c in drawn
        }
        self.measure("raw", raw)
        self.measure("filtered", self.filtered(raw))
        self.measure("people only", corrected)
        self.measure("raw + people", {**raw, **corrected})
        self.loop(raw)
        self.figures["length_baseline"] = statistics.fmean(len(p.chosen) > len(p.rejected) for p in self.scenario.test)
        self.figures["noise_raw"] = self.noise(raw)

    def measure(self, arm: str, labels: Mapping[str, str | None]) -> None:
        """Train on those labels that are A or B; keep the accuracy on the debates held out."""
        pairs = [self.by_id[c].pair(label) for c, label in labels.items() if label in ("A", "B")]
        p = fit(self.cache, pairs).probabilities(self.scenario.test)
        self.accuracy[arm] = statistics.fmean(q is not None and q > 0.5 for q in p)
        self.figures[f"pairs {arm}"] = len(pairs)
        self.figures[f"noise {arm}"] = self.noise(labels)

    def noise(self, labels: Mapping[str, str | None]) -> float:
        """Share of the A/B labels that differ from the majority, where that is A or B."""
        truths = [(label, self.by_id[c].truth) for c, label in labels.items() if label in ("A", "B")]
        decided = [(label, truth) for label, truth in truths if truth in ("A", "B")]
        return sum(label != truth for label, truth in decided) / max(1, len(decided))

    def filtered(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Two halves by debate; each loses what the other half's model contradicts."""
        debates = sorted({row.group for row in self.scenario.train})
        random.Random(self.seed + 2000).shuffle(debates)
        half = {debate: position % 2 == 0 for position, debate in enumerate(debates)}
        p = cross_fitted(self.cache, self.scenario.train, self.scenario.source, halves=half)
        return {c: label for c, label in raw.items() if p.get(c, 0.0) > 0.5}

    def loop(self, raw: Mapping[str, Answer]) -> None:
        settings = LoopSettings(self.options.people, self.options.iterations, self.options.seed_silver)
        encoder = open_encoder(self.options.encoder, "cpu")
        scenario = self.scenario
        done = run_loop(scenario.train, scenario.source, scenario.people, self.cache, encoder, settings, seed=self.seed)
        gold_silver = {c: label for c, (pool, label) in done.labels.items() if pool in ("gold", "silver")}
        recycled = {c: label for c, (pool, label) in done.labels.items() if pool == "recycled"}
        gold = {c: label for c, (pool, label) in done.labels.items() if pool == "gold"}
        self.measure("raw + loop's people", {**raw, **gold})
        self.measure("loop", gold_silver)
        self.measure("loop + recycled", {**gold_silver, **recycled})
        decided = {
            c for c, answer in scenario.source.items() if answer in ("A", "B") and self.by_id[c].truth in ("A", "B")
        }
        wrong = {c for c in decided if scenario.source[c] != self.by_id[c].truth}
        self.figures["errors"] = precision_recall(done.flagged(scenario.source) & decided, wrong)
        self.figures |= {"stage1": done.stage1.iterations, "stage2": done.stage2, "people": done.people_asked}
        self.figures["refused"] = done.refused


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the shared data")
    parser.add_argument("--features", type=Path, default=None, help="workspace that keeps the features between runs")
    parser.add_argument("--base", default="smollm2", help="frozen backbone")
    parser.add_argument("--encoder", default="minilm", help="for retrieval")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--people", type=int, default=300, help="comparisons that people see")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seed-silver", type=int, default=300, help="source labels the loop begins with")
    options = parser.parse_args()
    path = options.data / SET
    if not path.is_file():
        sys.exit(f"skipped: no shared data at {options.data} (--data FOLDER)")
    limit = None
    if options.quick:
        options.base, options.encoder, options.seeds, options.people, options.iterations = "tiny", "hashing", 2, 60, 2
        options.seed_silver, limit = 100, 800
    rows = read_rows(path)
    feature_store = Workspace.create(options.features) if options.features is not None else None
    cache = FeatureCache(FrozenBackbone(options.base, max_length=512, device="cpu"), feature_store)
    texts = {(row.prompt, text) for row in rows for text in (row.a, row.b)}
    started = time.perf_counter()
    cache.of([ScoreItem(prompt, text) for prompt, text in sorted(texts, key=str)])
    print(f"{len(rows)} pairs, {len(texts)} arguments, features in {time.perf_counter() - started:.0f} s", flush=True)

    trials = []
    for seed in range(options.seeds):
        trial = Trial(scenario(rows, seed, limit=limit), cache, options, seed)
        started = time.perf_counter()
        trial.run()
        trials.append(trial)
        accuracies = ", ".join(f"{arm} {trial.accuracy[arm]:.3f}" for arm in ARMS)
        print(f"seed {seed}: {accuracies} ({time.perf_counter() - started:.0f} s)", flush=True)
    report = Report("curation_ukp", measures=MEASURES)
    report.figures = summary(trials, options)
    loop, people = ([t.accuracy[arm] for t in trials] for arm in ("loop", "raw + people"))
    raw = [t.accuracy["raw"] for t in trials]
    report.ratios["accuracy: loop / raw + people at random"] = statistics.fmean(loop) / statistics.fmean(people)
    report.ratios["accuracy: loop / raw"] = statistics.fmean(loop) / statistics.fmean(raw)
    show(report.figures)
    report.finish(options)


def summary(trials: Sequence[Trial], options: Any) -> dict[str, Any]:
    arms = {}
    for arm in ARMS:
        against = {
            other: interval([t.accuracy[arm] - t.accuracy[other] for t in trials]) for other in ("raw", "raw + people")
        }
        arms[arm] = {
            "accuracy": interval([t.accuracy[arm] for t in trials]),
            "minus raw": against["raw"],
            "minus raw + people": against["raw + people"],
            "pairs": statistics.fmean(t.figures[f"pairs {arm}"] for t in trials),
            "noise": statistics.fmean(t.figures[f"noise {arm}"] for t in trials),
        }
    errors = {k: interval([t.figures["errors"][k] for t in trials]) for k in ("precision", "recall")}
    return {
        "settings": {
            k: getattr(options, k) for k in ("base", "encoder", "seeds", "people", "iterations", "seed_silver")
        },
        "test_pairs": statistics.fmean(len(t.scenario.test) for t in trials),
        "length_baseline": interval([t.figures["length_baseline"] for t in trials]),
        "arms": arms,
        "errors_found": errors,
        "wrong_share_raw": statistics.fmean(t.figures["noise_raw"] for t in trials),
        "people_comparisons": statistics.fmean(t.figures["people"] for t in trials),
        "refused": sum(t.figures["refused"] for t in trials),
        "stage1_of_seed_0": trials[0].figures["stage1"],
        "stage2_of_seed_0": trials[0].figures["stage2"],
    }


def show(figures: Mapping[str, Any]) -> None:
    print(f"\nlength baseline {show_ci(figures['length_baseline'])}, {figures['test_pairs']:.0f} test pairs a seed")
    print(f"{'arm':<20} {'pairs':>6} {'noise':>6}  {'accuracy':<22} {'minus raw':<26} minus raw + people")
    for arm, row in figures["arms"].items():
        print(
            f"{arm:<20} {row['pairs']:>6.0f} {row['noise']:>6.1%}  {show_ci(row['accuracy']):<22} "
            f"{show_ci(row['minus raw'], signed=True):<26} {show_ci(row['minus raw + people'], signed=True)}"
        )
    print(
        f"errors found: precision {show_ci(figures['errors_found']['precision'])}, "
        f"recall {show_ci(figures['errors_found']['recall'])}; "
        f"{figures['wrong_share_raw']:.1%} of the labels are wrong; "
        f"stage 2 would be refused, as making labels worse, with {figures['refused']} of the seeds: it is forced here\n"
    )


if __name__ == "__main__":
    main()
