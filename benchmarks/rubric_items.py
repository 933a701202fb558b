"""How well the items of a rubric are graded, item by item, on OpenAI's 23 propositions about 351 responses.

Each proposition is an item of one rubric, in our words (`principle_sets.PROPOSITIONS`); a principle model, by default
the embedded language model without training, grades all of them in one shared pass; researchers said which hold.
AUC by item with a bootstrap interval over responses, beside the length of the response (`length`; its sign is not
chosen: both directions are shown) and the labels themselves (`oracle`, which checks the arithmetic: 1). Items with
fewer than MIN of either label are left out and counted, responses whose rubric has no score too.

    python benchmarks/rubric_items.py --data FOLDER [--quick] [--model M] [--trained]

--trained: a judge of the items that is trained here, by `assay train probe --ratings`: eight ridge heads on the model's
frozen states, an output for each proposition, from labels 0 and 1. Fixed before it was run: of the 120 responses that
are shortest with their prompts, those of half the prompts (by digest) are trained on, the others are graded; the
penalty by cross-validation within the former; nothing else was tried. Expected: above the length, by the interval of
the mean over items of AUC less the length's with the sign that is better on the graded responses themselves.

Needs the shared data (rbr_gold_propositions). No ratio: an untrained model of 135M parameters is a weak grader.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Report, arguments
from principle_sets import PROPOSITIONS, records

MEASURES = (
    "serving/assay_serving/rubrics",
    "serving/assay_serving/engines",
)

if TYPE_CHECKING:
    from assay.score import ScoreResult

MIN = 5
RESAMPLES = 500


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data")
    parser.add_argument("--model", default="smollm2", help="principle model, or any language model")
    parser.add_argument("--responses", type=int, default=None, help="the shortest so many: quick 40, trained 120")
    parser.add_argument("--trained", action="store_true", help="train heads of the items on half of the prompts")
    options = parser.parse_args()
    file = options.data / "rbr_gold_propositions.jsonl.gz"
    if not file.is_file():
        raise SystemExit(f"skipped: {file} is not there")
    rows = list(records(file))
    if options.quick or options.trained:  # a pass of the shortest is quick; their labels are as mixed as the others'
        shortest = sorted(rows, key=lambda row: len(str(row["prompt"])) + len(row["responses"][0]))
        rows = shortest[: options.responses or (120 if options.trained else 40)]
    if options.trained:
        rows, results = trained(rows, options.model)
    else:
        results = asked(rows, options.model)
    report_items(rows, results, options)


def asked(rows: list[dict[str, Any]], model: str) -> list[ScoreResult]:
    """Grades of a model that is asked each proposition."""
    from assay.domain import prompt_of
    from assay_serving.engines.principle import PrincipleScorer
    from assay_serving.model_config import ModelConfig
    from assay_serving.model_loader import Loader
    from assay_serving.rubrics.description import RubricSpec
    from assay_serving.rubrics.grading import RubricScorer
    from assay_serving.scorer import ScoreItem

    config = Loader().resolve(ModelConfig(model, kind="principle"))
    items = [{"name": name, "text": text} for name, text in PROPOSITIONS.items()]
    spec = RubricSpec.from_dict({"kind": "rubric", "scorers": [{"name": "ask", "model": model}], "items": items})
    scorer = RubricScorer(spec, {"ask": PrincipleScorer.load(config)}, name="propositions")
    return scorer.score([ScoreItem(prompt_of(row["prompt"]), row["responses"][0]) for row in rows])


def trained(rows: list[dict[str, Any]], model: str) -> tuple[list[dict[str, Any]], list[ScoreResult]]:
    """The rows of the other half of the prompts, and their grades by heads that the first half trained."""
    import tempfile

    from assay import ids
    from assay.cli.main import main as assay
    from assay.domain import prompt_of
    from assay.workspace import Workspace
    from assay_serving.model_config import ModelConfig
    from assay_serving.model_loader import load_scorer
    from assay_serving.scorer import ScoreItem

    first = [int(ids.digest(json.dumps(row["prompt"])), 16) % 2 == 0 for row in rows]
    others = [row for row, is_first in zip(rows, first, strict=True) if not is_first]
    with tempfile.TemporaryDirectory() as folder:
        workspace, data = Workspace.create(Path(folder) / "w"), Path(folder) / "rated.jsonl"
        with data.open("w") as stream:
            for row in (row for row, is_first in zip(rows, first, strict=True) if is_first):
                held = {name: float(row["ratings"]["propositions"][name]) for name in PROPOSITIONS}
                rated = {"prompt": row["prompt"], "response": row["responses"][0], "ratings": held}
                stream.write(json.dumps(rated) + "\n")
        names = ("--ratings", ",".join(PROPOSITIONS), "--name", "items", "--device", "cpu")
        try:
            assay(["train", "probe", "--data", str(data), "--base", model, *names, "-w", str(workspace.root)])
        except SystemExit as stop:
            if stop.code:
                raise
        scorer = load_scorer(ModelConfig(str(workspace.models / "items"), device="cpu"), workspace.root)
        return others, scorer.score([ScoreItem(prompt_of(row["prompt"]), row["responses"][0]) for row in others])


def report_items(rows: list[dict[str, Any]], results: list[ScoreResult], options: Any) -> None:
    from assay.score import Score

    graded = [(row, score) for row, score in zip(rows, results, strict=True) if isinstance(score, Score)]
    report = Report("rubric_items", measures=MEASURES)
    figures: dict[str, Any] = {}
    columns: list[tuple[list[float], list[float], list[float]]] = []
    for number, name in enumerate(PROPOSITIONS):
        labels = [float(row["ratings"]["propositions"][name]) for row, _ in graded]
        if min(sum(labels), len(labels) - sum(labels)) < MIN:
            continue
        grades = [float(score.parts[number].value or 0.0) for _, score in graded]
        lengths = [float(len(row["responses"][0])) for row, _ in graded]
        columns.append((grades, labels, lengths))
        low, high = interval(grades, labels)
        figures[name] = {
            "auc": area(grades, labels),
            "low": low,
            "high": high,
            "length": area(lengths, labels),
            "oracle": area(labels, labels),
            "yes": int(sum(labels)),
        }
        one = figures[name]
        print(
            f"{name:38} AUC {one['auc']:.2f} ({low:.2f} to {high:.2f})   length {one['length']:.2f} or "
            f"{1 - one['length']:.2f}   {one['yes']} of {len(labels)} hold"
        )
    areas = [one["auc"] for one in figures.values()]
    by_length = [max(one["length"], 1 - one["length"]) for one in figures.values()]
    print(
        f"mean over {len(areas)} items {sum(areas) / len(areas):.3f}; length with the better sign of each "
        f"{sum(by_length) / len(by_length):.3f}; {len(PROPOSITIONS) - len(areas)} items with fewer than {MIN} of a "
        f"label left out; {len(rows) - len(graded)} of {len(rows)} responses without a score"
    )
    low, high = gain_interval(columns)
    print(f"mean AUC less the length's: {low:+.3f} to {high:+.3f} (95 % of resampled responses)")
    report.figures |= {"mean": sum(areas) / len(areas), "mean_length": sum(by_length) / len(by_length)}
    report.figures |= {"gain": [low, high], "trained": options.trained, "items": figures}
    report.figures |= {"responses": len(graded), "failed": len(rows) - len(graded)}
    report.finish(options)


def area(grades: list[float], labels: list[float]) -> float:
    """Chance that a response of which the item holds has the higher grade, a tie 1/2."""
    import numpy as np

    held = np.array(labels) > 0.5
    gaps = np.array(grades)[held][:, None] - np.array(grades)[~held][None, :]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def interval(grades: list[float], labels: list[float]) -> tuple[float, float]:
    """95 % of bootstrap resamples of responses; those without both labels are drawn again."""
    generator = random.Random(0)
    areas: list[float] = []
    while len(areas) < RESAMPLES:
        drawn = [generator.randrange(len(labels)) for _ in labels]
        if 0 < sum(labels[n] for n in drawn) < len(drawn):
            areas.append(area([grades[n] for n in drawn], [labels[n] for n in drawn]))
    areas.sort()
    return areas[int(0.025 * RESAMPLES)], areas[int(0.975 * RESAMPLES) - 1]


def gain_interval(columns: list[tuple[list[float], list[float], list[float]]]) -> tuple[float, float]:
    """95 % of bootstrap resamples of responses: the mean over items of AUC less that of length with its better sign; an
    item without both labels in a resample is left out of it."""
    generator, gains = random.Random(1), []
    signs = [1.0 if area(lengths, labels) >= 0.5 else -1.0 for _, labels, lengths in columns]
    for _ in range(RESAMPLES):
        drawn = [generator.randrange(len(columns[0][0])) for _ in columns[0][0]]
        each = []
        for (grades, labels, lengths), sign in zip(columns, signs, strict=True):
            held = [labels[n] for n in drawn]
            if 0 < sum(held) < len(held):
                each.append(area([grades[n] for n in drawn], held) - area([sign * lengths[n] for n in drawn], held))
        gains.append(sum(each) / len(each))
    gains.sort()
    return gains[int(0.025 * RESAMPLES)], gains[int(0.975 * RESAMPLES) - 1]


if __name__ == "__main__":
    main()
