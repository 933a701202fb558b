"""A judge's k votes on one question: asked for at once, beside k requests of one vote each.

Two parts of a vote, with the weights of SmolLM2's first layers: writing the answers (sampled), and the labels'
log-probs at the end of given answers, which a second pass reads. `at once` reads the question once for all votes in
each part. Reported: positions that went through the model while a question was read (`prefilled`), and votes a CPU
second, ratio to single requests. The log-probs of both ways must agree. The question is the pairwise one of ours on HH
pairs (needs the shared data).

    python benchmarks/vote_sharing.py [--quick] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hh_pairs import hh_pairs
from measure import Cost, Report, arguments, compare, spent

MEASURES = (
    "serving/assay_serving/generative",
    "platform/assay/models",
)

TOLERANCE = 1e-3
REASON = "Response {} answers what was asked, and says why; the other one leaves the question open, number {}."


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--votes", type=int, default=8)
    parser.add_argument("--layers", type=int, default=None, help="of SmolLM2, the first ones (default: 10; quick: 4)")
    parser.add_argument("--new-tokens", type=int, default=16, help="of each sampled answer")
    options = parser.parse_args()
    import torch

    from assay_serving.generative.engine import with_settings
    from assay_serving.generative.local import LocalWriter
    from assay_serving.generative.templates import PAIRWISE
    from assay_serving.model_config import ModelConfig

    torch.set_num_threads(1)  # so that CPU seconds are the work and not the waiting
    layers, rounds = options.layers or (4 if options.quick else 10), 5
    votes: int = options.votes
    judging = with_settings(PAIRWISE.judging, temperature=1.0, samples=votes, max_new_tokens=options.new_tokens)
    writer, _ = LocalWriter.load(ModelConfig("smollm2", device="cpu"), judging=judging)
    model: Any = writer.model
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    questions = [PAIRWISE.ask(pair.prompt, (pair.chosen, pair.rejected)) for pair in hh_pairs(2 * rounds + 2, seed=1)]
    questions = [one for one in questions if writer.fits(one, judging)][: rounds + 1]
    texts = [f"{REASON.format('AB'[n % 2], n)}\nVerdict: {'AB'[n % 2]}" for n in range(votes)]
    read: dict[str, list[int]] = {}
    logps: dict[str, list[Any]] = {}

    def measured(name: str, work: Callable[[Any, int], Any]) -> Callable[[], Cost]:
        def once() -> Cost:
            number = len(read.setdefault(name, []))
            positions: list[int] = []
            hook = model.model.register_forward_pre_hook(
                lambda _, __, inputs: positions.append(inputs["input_ids"].numel()), with_kwargs=True
            )
            answers = logps.setdefault(name, [])
            cost = spent(lambda: answers.append(work(questions[number], number)), amount=votes)
            hook.remove()
            read[name].append(sum(count for count in positions if count > votes))  # not the steps of single tokens
            return cost

        return once

    def write(question: Any, number: int, samples: int) -> None:
        one = with_settings(judging, samples=samples)
        for seed in range(votes // samples):
            writer.answer([question], PAIRWISE, one, seed=1000 * number + seed)

    contenders = {
        "answers, at once": measured("answers, at once", lambda q, n: write(q, n, votes)),
        "answers, alone": measured("answers, alone", lambda q, n: write(q, n, 1)),
        "log-probs, at once": measured(
            "log-probs, at once", lambda q, n: writer.label_logps([q] * votes, texts, PAIRWISE)
        ),
        "log-probs, alone": measured(
            "log-probs, alone", lambda q, n: [writer.label_logps([q], [text], PAIRWISE)[0] for text in texts]
        ),
    }
    for contender in contenders.values():  # once unmeasured: a first pass prepares kernels
        contender()
    compared = compare(contenders, options, rounds=rounds)
    pairs = zip(logps["log-probs, at once"], logps["log-probs, alone"], strict=True)
    apart = max(
        abs(one[label] - other[label]) for a, b in pairs for one, other in zip(a, b, strict=True) for label in "AB"
    )
    if apart > TOLERANCE:
        sys.exit(f"log-probs differ by {apart:.3g}: the comparison means nothing")
    report = Report("vote_sharing", measures=MEASURES)
    report.ratios = {
        f"{part}: at once / alone": compared.ratio(f"{part}, at once", f"{part}, alone")
        for part in ("log-probs", "answers")
    }
    report.figures = {
        "votes": votes,
        "layers": layers,
        "prefilled": {name: sum(counts[1:]) for name, counts in read.items()},
        "votes_per_cpu_s": {name: round(compared.per_cpu_second(name).median, 2) for name in contenders},
        "largest_difference": apart,
    }
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


if __name__ == "__main__":
    main()
