"""What a rubric costs: 16 items of 8 responses in one shared pass, beside each question by itself in padded batches.

Both sides run the same weights on the same questions and must give the same grades. `plain` is the usual way: each
question (conversation, response, item) is a row of its own, sorted by length and padded. Report "responses graded a
second", ratio to plain. The embedded language model answers; a larger model gains more, a shorter prompt less.

    python benchmarks/rubric_scoring.py [--quick] [--model M]

Leaves out: how good the grades are (`rubric_items.py`); judges that write answers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from measure import Report, arguments, compare, spent

MEASURES = (
    "serving/assay_serving/rubrics",
    "serving/assay_serving/engines",
    "platform/assay/models",
)

ITEMS, RESPONSES = 16, 8
PROMPT = (
    "You advise a museum of technology. A visitor asks how metals were worked before the industrial revolution, what "
    "each was used for, and why some were abandoned. Answer for a general reader: name at least three metals, give one "
    "use of each with a period, explain one difficulty of working it, and say where your knowledge ends. "
)
SENTENCES = (
    "Copper was hammered cold at first and later melted in clay furnaces.",
    "Bronze, an alloy with tin, is harder and was cast into axes, bells and statues.",
    "Iron needed far hotter fires, so smiths worked the bloom with hammers instead of casting it.",
    "Gold does not tarnish, which made it the metal of jewels and coins.",
    "Lead was soft enough for pipes, and was abandoned once its poison was known.",
    "Of the earliest workshops little is left, so that dates differ between authors.",
)


def first_layers(model: str, layers: int, folder: Path) -> Path:
    """The language model with these layers alone, saved."""
    import torch

    from assay.models.loading import load_causal_lm, load_tokenizer

    tokenizer = load_tokenizer(model)
    network: Any = load_causal_lm(model, tokenizer, dtype=torch.float32, device=torch.device("cpu"))
    network.model.layers = network.model.layers[:layers]
    network.config.num_hidden_layers = layers
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--model", default="smollm2", help="principle model, or any language model")
    parser.add_argument("--layers", type=int, default=None, help="only the first ones, of both sides (quick: 3)")
    options = parser.parse_args()
    rounds = 5 if options.quick else 7

    from assay.domain import Message
    from assay.score import Score
    from assay_serving.engines.principle import PrincipleScorer
    from assay_serving.model_config import ModelConfig
    from assay_serving.model_loader import Loader
    from assay_serving.rubrics.description import RubricSpec
    from assay_serving.rubrics.grading import RubricScorer
    from assay_serving.rubrics.rubric import with_rubric
    from assay_serving.scorer import ScoreItem

    layers = options.layers or (3 if options.quick else None)
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model if layers is None else str(first_layers(options.model, layers, Path(scratch)))
        packed = PrincipleScorer.load(Loader().resolve(ModelConfig(model, kind="principle", device="cpu")))
    _, plain = next(iter(packed.other_ways()))  # right-padded rows
    spec = RubricSpec.from_dict({"kind": "rubric", "scorers": [{"name": "ask", "model": options.model}]})
    shared = RubricScorer(spec, {"ask": packed}, name="shared")
    prompt = (Message("user", PROMPT),)
    texts = [
        " ".join(SENTENCES[(n + k) % len(SENTENCES)] for k in range(3 if options.quick else 6)) + f" ({n})"
        for n in range(RESPONSES)
    ]
    criteria = [f"The response says why metal number {number} was worked as it was." for number in range(ITEMS)]
    label = with_rubric(None, criteria)
    graded = [ScoreItem(prompt, text, label=label) for text in texts]
    questions = [ScoreItem(prompt, text, criterion) for text in texts for criterion in criteria]

    def grades(scores: list[Any]) -> list[float]:
        parts = [part for score in scores if isinstance(score, Score) for part in score.parts]
        return [part.value for part in parts if part.value is not None]

    answers: dict[str, list[float]] = {}

    def grade() -> None:
        answers["shared"] = grades(shared.score(graded))

    def ask() -> None:
        given = [score.probability for score in plain.score(questions) if isinstance(score, Score)]
        answers["plain"] = [value for value in given if value is not None]

    contenders = {"shared": lambda: spent(grade, amount=RESPONSES), "plain": lambda: spent(ask, amount=RESPONSES)}
    compared = compare(contenders, options, rounds=rounds)
    apart = max(abs(a - b) for a, b in zip(answers["shared"], answers["plain"], strict=True))
    assert len(answers["plain"]) == ITEMS * RESPONSES
    assert apart < 1e-3, f"the two ways differ by {apart}"
    tokens, computed = packed.last_tokens, packed.last_computed
    report = Report("rubric_scoring", measures=MEASURES)
    report.ratios["shared / plain"] = compared.ratio("shared", "plain")
    report.figures |= {
        "layers": len(packed.model.model.layers),
        "responses_per_cpu_s": {name: round(compared.per_cpu_second(name).median, 2) for name in contenders},
        "tokens": tokens,
        "positions_computed": computed,
        "largest_difference_of_grades": apart,
    }
    report.finish(options)


if __name__ == "__main__":
    main()
