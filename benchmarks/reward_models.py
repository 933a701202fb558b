"""The family on real data: scalar, principle and generative reward models of one small base, in one table.

Per kind and set: held-out accuracy with its Wilson interval beside choosing the longer response, calibration error and
NLL before and after the fitted calibration (fitted on dev, measured on test), seconds a thousand scores. Sets are split
by prompt (UKPConvArg1: by debate), so that no prompt is on both sides; rows longer than --max-length tokens are left
out and counted.

    scalar      Bradley-Terry on pairs: HH-RLHF (helpful and harmless), UKPConvArg1, TARA
    principle   Yes/No on one response under a named principle: Shepherd, TTCW, RBR propositions (`principle_sets.py`);
                the baseline is answering each principle's base rate in training; a row is one judgment
    generative  reasons, then judges a pair: supervised on UKPConvArg1's reasons, both orders asked (rule PROB); a third
                of the rows, a fifth of the test pairs; answers are long, and scores dear

It needs the shared data (--data FOLDER) and, but for --quick (the tiny model, whose figures mean nothing), the extra
`demo`. One seed is one training a row: intervals are over test rows, not over trainings.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from assay.data.pairs import read_pair_file
from assay.domain import PreferencePair, Prompt, prompt_of
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.statistics.intervals import bounds
from assay.workspace import Workspace
from assay_rm_training.calibration.fitting import fit_calibration, fit_judgments
from assay_rm_training.calibration.measures import calibration_report
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.evaluation.principle import evaluate_rows
from assay_rm_training.evaluation.principle_split import with_cells
from assay_rm_training.generative.evaluation import evaluate_pairs
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_rm_training.generative.sft import GenerativeSft
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.principle import Principle
from assay_rm_training.runs.train import TrainingPlan, train_model
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_judge
from measure import Report, arguments
from principle_sets import SETS as PRINCIPLE_SETS
from principle_sets import records

MEASURES = (
    "rm_training/assay_rm_training/methods",
    "rm_training/assay_rm_training/training",
    "rm_training/assay_rm_training/calibration",
    "rm_training/assay_rm_training/generative",
)

Row = TypeVar("Row")
PAIR_SETS = {
    "hh": ("hh_helpful_base_test.jsonl.gz", "hh_harmless_base_test.jsonl.gz"),
    "ukp": ("ukpconvarg1_pairs.jsonl.gz",),
    "tara": ("tara_tool_pairs.jsonl.gz",),
}


@dataclass(frozen=True)
class Sizes:
    """Rows of each part, tokens of the longest conversation kept."""

    train: int
    dev: int
    test: int
    max_length: int


@dataclass(frozen=True)
class Found:
    """One row of the table. `interval`: 95 %, Wilson. `nll`, `ece`: before and after calibration; None: no probability.

    `baseline`: choosing the longer response, or the base rate's answer where rows are single responses.
    """

    kind: str
    data: str
    train: int
    test: int
    accuracy: float
    interval: tuple[float | None, float | None]
    baseline: float
    ece: tuple[float, float] | None
    nll: tuple[float, float] | None
    seconds_per_1k: float
    trained_seconds: float
    note: str = ""


def split(
    rows: Sequence[Row], group: Callable[[Row], str], sizes: Sizes, *, seed: int
) -> tuple[list[Row], list[Row], list[Row]]:
    """Train, dev and test of the wanted sizes; all rows of a group go to one of them."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[group(row)].append(row)
    order = sorted(groups)
    random.Random(seed).shuffle(order)
    parts: tuple[list[Row], list[Row], list[Row]] = ([], [], [])
    split_sizes = (sizes.train, sizes.dev, sizes.test)
    shares = [w / sum(split_sizes) for w in split_sizes]
    for name in order:  # to the part that lacks most of its share, so that few large groups (debates) spread too
        filled = sum(len(part) for part in parts) or 1
        lacking = max(range(3), key=lambda i: shares[i] - len(parts[i]) / filled)
        parts[lacking].extend(groups[name])
    rng = random.Random(seed + 1)
    for part, size in zip(parts, split_sizes, strict=True):
        rng.shuffle(part)
        del part[size:]
    return parts


def scalar(workspace: Workspace, name: str, folder: Path, base: str, sizes: Sizes, seed: int) -> Found:
    """Bradley-Terry on one set of pairs."""
    renderer = Renderer(load_tokenizer(base), max_length=100_000)
    pairs = [pair for file in PAIR_SETS[name] for pair in read_pair_file(folder / file)]
    short = [pair for pair in pairs if longest(renderer, pair) <= sizes.max_length]
    by_debate = name == "ukp"
    train, dev, test = split(short, lambda p: p.category if by_debate else said(p.prompt), sizes, seed=seed)
    config = training_config(base, sizes, seed)
    plan = TrainingPlan(config, name, None, f"scalar-{name}", force=True, method=BradleyTerry())
    path, took = trained_once(workspace, plan, train)
    scorer = TransformersScorer.load(ModelConfig(path))
    fitted_on, (measured, seconds) = evaluate(scorer, dev), timed_evaluation(scorer, test)
    return pair_figures("scalar", name, took, fitted_on, measured, seconds, len(train))


def trained_once(workspace: Workspace, plan: TrainingPlan, rows: Sequence[Any]) -> tuple[str, float]:
    """The checkpoint's path and its training's seconds, of an earlier run in the same --work where there was one.

    The same settings and the same rows, that is: other rows may be among those that are to be tested on.
    """
    stored = workspace.root / f"trained-{plan.name}.json"
    settings_hash = hashlib.sha256(repr((plan.config, plan.method, rows)).encode()).hexdigest()
    if not stored.is_file() or json.loads(stored.read_text())["given"] != settings_hash:
        trained = train_model(workspace, plan, rows)
        record = {"given": settings_hash, "path": str(trained.path.resolve()), "seconds": trained.summary.seconds}
        stored.write_text(json.dumps(record) + "\n")
    previous = json.loads(stored.read_text())
    return previous["path"], previous["seconds"]


def pair_figures(
    kind: str, name: str, trained_seconds: float, dev: PairEvaluation, test: PairEvaluation, seconds: float, rows: int
) -> Found:
    """Test figures, before and after the temperature that fits the dev pairs."""
    chosen, rejected = test.rewards()
    d = [c - r for c, r in zip(chosen, rejected, strict=True)]
    raw = calibration_report(d)
    note = ""
    try:
        temperature = fit_calibration(*dev.rewards(), fitted_on="dev").temperature
        after = calibration_report(d, temperature=temperature)
        ece, nll = (raw.ece, after.ece), (raw.nll, after.nll)
    except BadInputError as error:
        ece, nll, note = (raw.ece, raw.ece), (raw.nll, raw.nll), str(error)
    return Found(
        kind,
        name,
        rows,
        test.scored,
        test.accuracy.value,
        (test.accuracy.wilson.low, test.accuracy.wilson.high),
        test.length_baseline,
        ece,
        nll,
        1000 * seconds / (2 * test.pairs),
        trained_seconds,
        note,
    )


def timed_evaluation(scorer: Any, pairs: Sequence[PreferencePair]) -> tuple[PairEvaluation, float]:
    started = time.perf_counter()
    evaluation = evaluate(scorer, pairs)
    return evaluation, time.perf_counter() - started


def training_config(base: str, sizes: Sizes, seed: int) -> TrainingConfig:
    """The same for every kind: two epochs, the lower two thirds of a thirty-layer base frozen, about 16 rows a step."""
    frozen = 20 if base == "smollm2" else 0
    return TrainingConfig(
        base, lr=1e-4, epochs=2, max_length=max(sizes.max_length, 64), freeze_layers=frozen, seed=seed, save_every=0
    )


def longest(renderer: Renderer, pair: PreferencePair) -> int:
    return max(len(renderer.encode(pair.prompt, text)) for text in (pair.chosen, pair.rejected))


def said(prompt: Prompt) -> str:
    return json.dumps([message.to_dict() for message in prompt])


def principle(workspace: Workspace, name: str, folder: Path, base: str, sizes: Sizes, seed: int) -> Found:
    """Yes/No under a principle, prompts held out. Stories (TTCW) are kept whole: their tests share one computation."""
    rows = PRINCIPLE_SETS[name](folder)
    length = 8 * sizes.max_length if name == "ttcw" else sizes.max_length
    renderer = Renderer(load_tokenizer(base), max_length=100_000)
    short = [row for row in rows if len(renderer.encode(row.prompt, row.response)) <= length - 80]  # room to ask
    train, dev, test = split(short, lambda row: said(row.prompt), sizes, seed=seed)
    # A step is of responses with all their judgments: as many responses as make about 16.
    responses = max(1, round(16 * len({(row.prompt, row.response) for row in train}) / len(train)))
    config = replace(training_config(base, sizes, seed), max_length=length, batch_size=responses)
    plan = TrainingPlan(config, name, None, f"principle-{name}", force=True, method=Principle())
    path, took = trained_once(workspace, plan, train)
    scorer = PrincipleScorer.load(ModelConfig(path))
    judged = evaluate_rows(scorer, with_cells(train, dev))
    started = time.perf_counter()
    measured = evaluate_rows(scorer, with_cells(train, test))
    seconds = time.perf_counter() - started
    note = f"prompts resampled; NLL of the base rate {measured.baseline_nll:.3f}" if measured.baseline_nll else ""
    judged_rewards = [(item.reward, item.fulfilled) for item in judged.items if item.reward is not None]
    try:
        fitted = fit_judgments(
            [reward for reward, _ in judged_rewards], [said_yes for _, said_yes in judged_rewards], fitted_on="dev"
        )
        after = measured.calibrated(fitted)
    except BadInputError as error:
        after, note = measured, "; ".join(filter(None, (note, str(error))))
    return Found(
        "principle",
        name,
        len(train),
        measured.scored,
        measured.overall.accuracy,
        bounds(measured.overall.interval),
        measured.overall.baseline or 0.0,
        (measured.ece, after.ece),
        (measured.nll, after.nll),
        1000 * seconds / measured.rows,
        took,
        note,
    )


def generative(workspace: Workspace, name: str, folder: Path, base: str, sizes: Sizes, seed: int) -> Found:
    """A pairwise judge, supervised on explained pairs; debates held out."""
    method = GenerativeSft("pairwise", max_new_tokens=48)
    renderer = Renderer(load_tokenizer(base), max_length=100_000)
    rows = [row for record in records(folder / PAIR_SETS[name][0]) for row in explained(record)]
    length = 2 * sizes.max_length
    short = [row for row in rows if len(renderer.encode(row.question(method.form), "")) <= length - 60]
    smaller = Sizes(sizes.train // 3, 0, sizes.test // 5, length)
    train, _, test = split(short, lambda row: row.category, smaller, seed=seed)
    config = replace(training_config(base, smaller, seed), epochs=1)
    plan = TrainingPlan(config, name, None, f"generative-{name}", force=True, method=method)
    path, took = trained_once(workspace, plan, train)
    judge = open_judge(ModelConfig(path))
    started = time.perf_counter()
    measured = evaluate_pairs(judge, test)
    seconds = time.perf_counter() - started
    accuracy = measured.figures["accuracy"]
    return Found(
        "generative",
        name,
        len(train),
        measured.items,
        accuracy.value,
        bounds(accuracy.interval),
        sum(longer(row) for row in test) / len(test),
        None,
        None,
        1000 * seconds / measured.answers,
        took,
        f"parse failures {measured.parse_failure_rate:.3f}, consistent in both orders "
        + (f"{measured.figures['consistency'].value:.3f}" if "consistency" in measured.figures else "never"),
    )


def explained(record: dict[str, Any]) -> list[JudgedRow]:
    """A pair of arguments with its most telling reason, the one that names both; none where nobody gave one."""
    if record["chosen"] is None:
        return []
    reasons = [part.strip() for part in (record["rationale"] or "").split(" | ")]
    telling = [r for r in reasons if re.search(r"\b[Aa]1\b", r) and re.search(r"\b[Aa]2\b", r) and len(r) <= 160]
    if not telling:
        return []
    reason = re.sub(r"\b[Aa]([12])\b", lambda m: f"Response {'AB'[int(m[1]) - 1]}", telling[0])
    label = "AB"[record["responses"].index(record["chosen"])]
    first, second = record["responses"]
    return [JudgedRow(prompt_of(record["prompt"]), (first, second), label, reason, category=record["category"])]


def longer(row: JudgedRow) -> float:
    """Credit for choosing the longer response."""
    a, b = (len(text) for text in row.responses)
    return 0.5 if a == b else float((a > b) == (row.label == "A"))


JOBS: dict[str, Callable[..., Found]] = {"scalar": scalar, "principle": principle, "generative": generative}
SETS = {"scalar": tuple(PAIR_SETS), "principle": ("shepherd", "ttcw", "rbr"), "generative": ("ukp",)}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data")
    parser.add_argument("--work", type=Path, help="folder for models and finished rows, to go on from")
    parser.add_argument("--measure-again", action="store_true", help="measure the models of --work again")
    parser.add_argument("--only", default="", help="comma-separated KIND or KIND:SET")
    parser.add_argument("--base", default="smollm2", help="the model that all start from")
    parser.add_argument("--seed", type=int, default=0, help="of splits, order and heads")
    for name, size in asdict(Sizes(600, 200, 500, 320)).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size, help=f"see Sizes.{name}")
    options = parser.parse_args()
    sizes = Sizes(options.train, options.dev, options.test, options.max_length)
    base = options.base
    if options.quick:
        sizes, base = Sizes(32, 16, 32, 1500), "tiny"
    selected = set(filter(None, options.only.split(",")))
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        workspace = Workspace.open(work) if (work / "assay.toml").is_file() else Workspace.create(work)
        rows = []
        for kind, make in JOBS.items():
            for name in SETS[kind]:
                if selected and not {kind, f"{kind}:{name}"} & selected:
                    continue
                stored = work / f"{kind}-{name}.json"
                if options.measure_again:
                    stored.unlink(missing_ok=True)
                figures = once(stored, make, workspace, name, options.data, base, sizes, options.seed)
                rows.append(figures)
                print(line(figures), flush=True)
    report = Report("reward_models", measures=MEASURES)
    report.figures = {"settings": {"base": base, "seed": options.seed, **asdict(sizes)}, "rows": rows}
    report.ratios = {f"{r['kind']} {r['data']}: accuracy / baseline": r["accuracy"] / r["baseline"] for r in rows}
    report.finish(options)


def once(
    stored: Path, make: Callable[..., Found], workspace: Workspace, name: str, folder: Path, *settings: Any
) -> dict[str, Any]:
    """A row of the table: made now, or by an earlier run in the same --work with the same settings."""
    stored_figures = json.loads(stored.read_text()) if stored.is_file() else {}
    if stored_figures.get("settings") != repr(settings):
        stored_figures = {"settings": repr(settings), "row": asdict(make(workspace, name, folder, *settings))}
        stored.write_text(json.dumps(stored_figures) + "\n")
    row: dict[str, Any] = json.loads(stored.read_text())["row"]
    return row


def line(row: dict[str, Any]) -> str:
    """One row of the table, in Markdown."""
    low, high = (math.nan if bound is None else bound for bound in row["interval"])
    ece = "{:.3f} to {:.3f}".format(*row["ece"]) if row["ece"] else "-"
    nll = "{:.3f} to {:.3f}".format(*row["nll"]) if row["nll"] else "-"
    cells = (
        f"{row['kind']} | {row['data']} | {row['train']} | {row['test']}",
        f"{row['accuracy']:.3f} [{low:.3f}, {high:.3f}] | {row['baseline']:.3f} | {ece} | {nll}",
        f"{row['seconds_per_1k']:.0f} | {row['trained_seconds']:.0f} | {row['note']}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
