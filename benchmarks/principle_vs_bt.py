"""A principle model against Bradley-Terry on the same annotated pairs (UKPConvArg2), as RLBFF compares them.

Both start from one language model and see the same training pairs: Bradley-Terry the preference, the principle model
the reasons given for it (`principle_sets.py` says how they become Yes and No). Measured on held-out debate topics, one
item for each reason of a pair: is the response that satisfies the principle ranked higher?

    principle   asked by the item's principle                 fixed     always asked by the most frequent one
    bt          scores both responses without any             untrained the language model itself, asked
    longer      chooses the longer response

and on the single judgments of the same items: accuracy beside that of each principle's base rate in training.
Intervals: bootstrap over held-out prompts, of which there are few; seeds change topics, pairs and training alike.

Needs the shared data (--data FOLDER) and, but for --quick (a tiny model, whose figures mean nothing), the extra `demo`.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.domain import PreferencePair, prompt_of, response_text
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device
from assay.models.loading import context_length
from assay.models.spec import RewardModelSpec
from assay.models.tiny import make_tiny
from assay.score import Score
from assay.statistics.intervals import bounds, clustered_mean
from assay_rm_training.data.principle_rows import PrincipleRow, principle_key, prompt_key
from assay_rm_training.evaluation.principle import PrincipleEvaluation, evaluate_rows
from assay_rm_training.evaluation.principle_split import with_cells
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.method import Method
from assay_rm_training.methods.principle import Principle
from assay_rm_training.training.loop import train
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.principle import principle_spec
from assay_serving.scorer import ScoreItem, Scorer
from measure import Report, arguments
from principle_sets import REASONS, records

MEASURES = (
    "rm_training/assay_rm_training/methods",
    "rm_training/assay_rm_training/training",
    "serving/assay_serving/engines",
)

FILE = "ukpconvarg2_reasons.jsonl.gz"


@dataclass(frozen=True)
class Reason:
    """One reason for one pair: under `principle`, the pair's chosen response is the satisfying one."""

    pair: PreferencePair
    principle: str


@dataclass(frozen=True)
class Sizes:
    """Training pairs and held-out pairs of one seed; topics held out; tokens of a conversation."""

    train: int
    test: int
    topics: int
    max_length: int


def reasons(folder: Path) -> list[Reason]:
    return [
        Reason(
            PreferencePair(
                prompt_of(record["prompt"]), record["chosen"], record["rejected"], category=record["category"]
            ),
            REASONS[label][0],
        )
        for record in records(folder / FILE)
        for label in record["meta"]["labels"]
    ]


def judged(reasons: Sequence[Reason]) -> list[PrincipleRow]:
    """Both sides of every reason as rows; an argument's label under a principle is the majority over its pairs."""
    balance: dict[tuple[Any, Any, str], int] = {}
    for reason in reasons:
        for response, vote in ((reason.pair.chosen, 1), (reason.pair.rejected, -1)):
            key = (reason.pair.prompt, response, reason.principle)
            balance[key] = balance.get(key, 0) + vote
    return [
        PrincipleRow(prompt, text, principle, vote > 0) for (prompt, text, principle), vote in balance.items() if vote
    ]


def divided(reasons: Sequence[Reason], sizes: Sizes, seed: int) -> tuple[list[Reason], list[Reason]]:
    """Reasons of `sizes.train` pairs of the training topics, and of `sizes.test` pairs of the held-out ones. Both
    stances of a debate are one topic."""
    rng = random.Random(seed)
    topics = sorted({_topic(reason) for reason in reasons})
    rng.shuffle(topics)
    away = set(topics[: sizes.topics])
    parts = []
    for held, size in ((False, sizes.train), (True, sizes.test)):
        pairs = sorted({_identity(r) for r in reasons if (_topic(r) in away) == held})
        rng.shuffle(pairs)
        train_pairs = set(pairs[:size])
        parts.append([r for r in reasons if _identity(r) in train_pairs])
    return parts[0], parts[1]


def trained(method: Method, rows: Sequence[Any], config: TrainingConfig) -> tuple[Scorer, float]:
    """The engine around the trained model, and the seconds that training took."""
    trainable = method.load(config, pick_device(config.device))
    length = config.max_length or context_length(trainable.model.config)
    renderer = Renderer(trainable.tokenizer, max_length=length)
    data = method.encode(rows, renderer)
    with tempfile.TemporaryDirectory() as folder:
        summary = train(trainable, method.task(trainable, config), data, config, Path(folder))
    spec = RewardModelSpec(method.kind, config.base, renderer.template_hash, length, "unsaved")
    spec = RewardModelSpec(**{**_fields(spec), **method.spec_fields(trainable)})
    scorer: Scorer = method.engine(trainable.model, renderer, spec, name=method.name)
    return scorer, summary.seconds


def untrained(config: TrainingConfig) -> Scorer:
    method = Principle()
    trainable = method.load(config, pick_device(config.device))
    length = config.max_length or context_length(trainable.model.config)
    renderer = Renderer(trainable.tokenizer, max_length=length)
    scorer: Scorer = method.engine(
        trainable.model, renderer, principle_spec(config.base, trainable.tokenizer), name="untrained"
    )
    return scorer


def ranked(scorer: Scorer, items: Sequence[Reason], principles: Sequence[str | None]) -> list[float]:
    """1.0 for each item whose satisfying response has the higher reward. Raises RuntimeError where one has none."""
    questions = [
        ScoreItem(item.pair.prompt, text, principle)
        for item, principle in zip(items, principles, strict=True)
        for text in (item.pair.chosen, item.pair.rejected)
    ]
    unique = list(dict.fromkeys(questions))
    rewards = {}
    for item, result in zip(unique, scorer.score(unique), strict=True):
        if not isinstance(result, Score):
            raise RuntimeError(f"{scorer.info.name}: {result.message}")
        rewards[item] = result.reward
    values = [rewards[item] for item in questions]
    return [float(a > b) for a, b in zip(values[::2], values[1::2], strict=True)]


def compared(folder: Path, sizes: Sizes, config: TrainingConfig) -> dict[str, Any]:
    """All figures of one seed, the configuration's."""
    seed = config.seed
    learn, held = divided(reasons(folder), sizes, seed)
    rows = judged(learn)
    pairs = list({_identity(r): r.pair for r in learn}.values())
    counts = {name: sum(r.principle == name for r in learn) for name in {r.principle for r in learn}}
    frequent = max(sorted(counts), key=lambda name: counts[name])
    started = time.perf_counter()
    names = [item.principle for item in held]
    right: dict[str, list[float]] = {
        "longer": [float(len(r.pair.chosen) > len(r.pair.rejected)) for r in held],
        "untrained": ranked(untrained(config), held, names),
    }
    bt, bt_seconds = trained(BradleyTerry(), pairs, config)
    right["bt"] = ranked(bt, held, [None] * len(held))
    del bt
    judge, seconds = trained(Principle(), rows, config)
    right["principle"] = ranked(judge, held, names)
    right["fixed"] = ranked(judge, held, [frequent] * len(held))
    single = evaluate_rows(judge, with_cells(rows, judged(held)), seed=seed)
    groups = [prompt_key(item.pair.prompt) for item in held]
    return {
        "seed": seed,
        "pairs": len(pairs),
        "rows": len(rows),
        "items": len(held),
        "prompts": len(set(groups)),
        "accuracy": {name: _share(values, groups, seed) for name, values in right.items()},
        "principle_mean": {name: _by_principle(values, held) for name, values in right.items()},
        "principle - bt": _difference(right["principle"], right["bt"], groups, seed),
        "principle - longer": _difference(right["principle"], right["longer"], groups, seed),
        "bt - longer": _difference(right["bt"], right["longer"], groups, seed),
        "single": _single(single),
        "seconds": {"bt": bt_seconds, "principle": seconds, "all": time.perf_counter() - started},
    }


def _single(evaluation: PrincipleEvaluation) -> dict[str, Any]:
    return {
        "rows": evaluation.scored,
        "accuracy": evaluation.overall.accuracy,
        "base_rate": evaluation.overall.baseline,
        "gain": asdict(evaluation.overall.gain) if evaluation.overall.gain else None,
        "macro": evaluation.macro_accuracy,
        "macro_base_rate": evaluation.macro_baseline,
        "ece": evaluation.ece,
        "cells": {cell.name: [cell.rows, cell.accuracy, cell.baseline] for cell in evaluation.cells},
    }


def _share(values: Sequence[float], groups: Sequence[str], seed: int) -> list[float]:
    """Mean and its interval."""
    interval = clustered_mean(values, groups)
    low, high = bounds(interval)
    return [round(v, 4) for v in (float(np.mean(values)), low or float("nan"), high or float("nan"))]


def _difference(first: Sequence[float], second: Sequence[float], groups: Sequence[str], seed: int) -> list[float]:
    return _share([a - b for a, b in zip(first, second, strict=True)], groups, seed)


def _by_principle(values: Sequence[float], items: Sequence[Reason]) -> float:
    """Unweighted mean over principles."""
    parts: dict[str, list[float]] = {}
    for value, item in zip(values, items, strict=True):
        parts.setdefault(principle_key(item.principle), []).append(value)
    return round(float(np.mean([np.mean(part) for part in parts.values()])), 4)


def _topic(reason: Reason) -> str:
    return reason.pair.category.split("_")[0]


def _identity(reason: Reason) -> tuple[str, str, str]:
    return prompt_key(reason.pair.prompt), response_text(reason.pair.chosen), response_text(reason.pair.rejected)


def _fields(spec: RewardModelSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in RewardModelSpec.__dataclass_fields__}


def main() -> None:
    parser = arguments((__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data")
    parser.add_argument("--base", default="smollm2", help="the language model that both start from")
    parser.add_argument("--train", type=int, default=400, help="training pairs")
    parser.add_argument("--test", type=int, default=200, help="held-out pairs")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the training data")
    parser.add_argument("--lr", type=float, default=1e-4, help="peak learning rate of both")
    parser.add_argument("--freeze-layers", type=int, default=0, help="lowest layers kept as they are, in both")
    parser.add_argument("--seeds", type=int, default=2, help="how many seeds")
    options = parser.parse_args()
    sizes, seeds, frozen = Sizes(options.train, options.test, 4, 640), options.seeds, options.freeze_layers
    with tempfile.TemporaryDirectory() as folder:
        base = options.base
        if options.quick:
            sizes, seeds, base, frozen = Sizes(24, 12, 4, 4096), 1, folder, 0
            make_tiny(Path(folder), words=("Yes", "No", " Yes", " No"))
        runs = []
        for seed in range(seeds):
            config = TrainingConfig(
                base,
                lr=options.lr,
                epochs=options.epochs,
                max_length=sizes.max_length,
                freeze_layers=frozen,
                seed=seed,
                save_every=0,
            )
            runs.append(compared(options.data, sizes, config))
            _show(runs[-1])
    settings = {"lr": options.lr, "freeze_layers": frozen, "base": "tiny" if options.quick else options.base}
    report = Report("principle_vs_bt", measures=MEASURES)
    report.figures = {"runs": runs, "sizes": asdict(sizes), "epochs": options.epochs, **settings}
    for peer in ("bt", "longer", "untrained"):
        mean = float(np.mean([run["accuracy"]["principle"][0] for run in runs]))
        report.ratios[f"accuracy, principle to {peer}"] = mean / max(
            float(np.mean([run["accuracy"][peer][0] for run in runs])), 1e-9
        )
    report.finish(options)


def _show(run: dict[str, Any]) -> None:
    print(
        f"seed {run['seed']}: {run['pairs']} pairs, {run['rows']} judged rows; {run['items']} held-out items of "
        f"{run['prompts']} prompts; trained in {run['seconds']['bt']:.0f} s (bt), {run['seconds']['principle']:.0f} s"
    )
    for name, (value, low, high) in run["accuracy"].items():
        print(
            f"  {name:10} {value:.4f} [{low:.4f}, {high:.4f}], mean over principles {run['principle_mean'][name]:.4f}"
        )
    for name in ("principle - bt", "principle - longer", "bt - longer"):
        value, low, high = run[name]
        print(f"  {name}: {value:+.4f} [{low:+.4f}, {high:+.4f}]")
    single = run["single"]
    print(
        f"  single judgments: {single['accuracy']:.4f}, base rate {single['base_rate']:.4f}; mean over principles "
        f"{single['macro']:.4f}, base rate {single['macro_base_rate']:.4f}; ECE {single['ece']:.4f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
