"""How well the items of a rubric are graded, item by item, on OpenAI's 23 propositions about 351 responses.

Each proposition is an item of one rubric, in our words (`principle_sets.PROPOSITIONS`); a principle model, by default
the embedded language model without training, grades all of them in one shared pass; researchers said which hold.
AUC by item with a bootstrap interval over responses, beside the length of the response (`length`; its sign is not
chosen: both directions are shown) and the labels themselves (`oracle`, which checks the arithmetic: 1). Items with
fewer than MIN of either label are left out and counted, responses whose rubric has no score too.

    python benchmarks/rubric_items.py --data FOLDER [--quick] [--model M]

Needs the shared data (rbr_gold_propositions). No ratio: an untrained model of 135M parameters is a weak grader.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from measure import Report, arguments
from principle_sets import PROPOSITIONS, records

MIN = 5
RESAMPLES = 500


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data")
    parser.add_argument("--model", default="smollm2", help="principle model, or any language model")
    parser.add_argument("--responses", type=int, default=None, help="with --quick: so many, the shortest (40)")
    options = parser.parse_args()
    file = options.data / "rbr_gold_propositions.jsonl.gz"
    if not file.is_file():
        raise SystemExit(f"skipped: {file} is not there")
    rows = list(records(file))
    if options.quick:  # the shortest, a pass of which is quick; their labels are as mixed as the others'
        rows = sorted(rows, key=lambda row: len(str(row["prompt"])) + len(row["responses"][0]))[
            : options.responses or 40
        ]

    from assay.domain import prompt_of
    from assay.score import Score
    from assay_serving.engines.principle import PrincipleScorer
    from assay_serving.model_config import ModelConfig
    from assay_serving.model_loader import Loader
    from assay_serving.rubrics.description import RubricSpec
    from assay_serving.rubrics.grading import RubricScorer
    from assay_serving.scorer import ScoreItem

    config = Loader().resolve(ModelConfig(options.model, kind="principle"))
    items = [{"name": name, "text": text} for name, text in PROPOSITIONS.items()]
    spec = RubricSpec.from_dict(
        {"kind": "rubric", "scorers": [{"name": "ask", "model": options.model}], "items": items}
    )
    scorer = RubricScorer(spec, {"ask": PrincipleScorer.load(config)}, name="propositions")
    results = scorer.score([ScoreItem(prompt_of(row["prompt"]), row["responses"][0]) for row in rows])
    graded = [(row, score) for row, score in zip(rows, results, strict=True) if isinstance(score, Score)]
    report = Report("rubric_items")
    figures: dict[str, Any] = {}
    for number, name in enumerate(PROPOSITIONS):
        labels = [float(row["ratings"]["propositions"][name]) for row, _ in graded]
        if min(sum(labels), len(labels) - sum(labels)) < MIN:
            continue
        grades = [float(score.parts[number].value or 0.0) for _, score in graded]
        lengths = [float(len(row["responses"][0])) for row, _ in graded]
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
    report.figures |= {"items": figures, "responses": len(graded), "failed": len(rows) - len(graded)}
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


if __name__ == "__main__":
    main()
