"""Does a policy follow the principle that its prompts name? Win rates by principle, of policies trained under each.

Two arms a seed: GRPO on prompts whose own rubric is one principle, "has a number" or "is in lower case"; the policy
sees the prompt alone. Programs grade both, so that the measure is the truth (the oracle arm and the reward are one).
Then both policies and the base answer held-out prompts, and under each principle a policy's response wins where it
satisfies the principle and the base's does not (ties half). Stated beforehand: the win rate under the principle that
was named is above that under the same principle when the other one was named; the gap's mean over seeds has an interval
of Student's t, and the lengths of responses stand beside it.

A first choice, "has three words" in place of lower case, was given up after a run: nearly every response of either arm
had them, so that nothing could move (+0.02).

The policy is `tiny`: random weights of a few thousand parameters, so that this shows the mechanism and no quality.

    python benchmarks/rubric_policies.py [--quick] [--seeds N] [--steps N]
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from assay.statistics.seeds import seed_interval
from measure import Report, arguments

MEASURES = (
    "serving/assay_serving/rubrics",
    "policy_training/assay_policy_training/training",
)

PRINCIPLES: dict[str, dict[str, Any]] = {
    "number": {"text": "The response has a number.", "constraints": [{"kind": "contains_number"}]},
    "lowercase": {"text": "The response is in lower case.", "constraints": [{"kind": "all_lowercase"}]},
}
TOKENS, SAMPLES, HELD_OUT = 16, 8, 16


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None, help="default: 60; quick: 25")
    parser.add_argument("--lr", type=float, default=3e-3)
    options = parser.parse_args()
    steps = options.steps or (25 if options.quick else 60)
    rates: dict[str, dict[str, list[float]]] = {arm: {name: [] for name in PRINCIPLES} for arm in PRINCIPLES}
    words: dict[str, list[float]] = {arm: [] for arm in PRINCIPLES}
    with tempfile.TemporaryDirectory() as folder:
        base = answers("tiny")
        for seed in range(options.seeds):
            for arm in PRINCIPLES:
                policy = trained(Path(folder) / f"{arm}-{seed}", arm, steps=steps, lr=options.lr, seed=seed)
                texts = answers(policy)
                words[arm].append(statistics.fmean(len(text.split()) for text in texts))
                for name in PRINCIPLES:
                    rates[arm][name].append(win_rate(texts, base, name))
                shown = ", ".join(f"{name} {rates[arm][name][-1]:.3f}" for name in PRINCIPLES)
                print(f"seed {seed}, named {arm}: wins under {shown}; {words[arm][-1]:.1f} words", flush=True)
    report = Report("rubric_policies", measures=MEASURES)
    for name in PRINCIPLES:
        [other] = [arm for arm in PRINCIPLES if arm != name]
        gaps = [a - b for a, b in zip(rates[name][name], rates[other][name], strict=True)]
        mean, interval = statistics.fmean(gaps), seed_interval(gaps)
        shown = f"95 % {interval.low:+.3f} to {interval.high:+.3f}" if interval else "one seed"
        print(f"{name}: win rate {mean:+.3f} where it is named ({shown})")
        bounds = {"low": interval.low, "high": interval.high} if interval else {}
        report.figures[f"{name} named"] = {"gap": mean, **bounds, "gaps": gaps}
    report.figures |= {"win_rates": rates, "words_by_response": words, "steps": steps, "seeds": options.seeds}
    report.finish(options)


def trained(folder: Path, arm: str, *, steps: int, lr: float, seed: int) -> str:
    """Path of a policy that was trained on prompts whose rubric is this principle."""
    from assay_policy_training.rollouts.rewards import ModelReward
    from assay_policy_training.trainer import PolicyTrainer
    from assay_serving.rubrics.description import RubricSpec
    from assay_serving.rubrics.grading import RubricScorer

    trainer = PolicyTrainer.from_recipe(
        "grpo",
        reward=ModelReward(RubricScorer(RubricSpec(), {}, name="rubric")),
        prompts=[{"prompt": f"Say thing {number}.", "rubric": [PRINCIPLES[arm]]} for number in range(32)],
        policy="tiny",
        workspace=folder,
        device="cpu",
        steps=steps,
        seed=seed,
        lr=lr,
        prompts_per_step=4,
        group_size=8,
        max_new_tokens=TOKENS,
        settings={"kl.coefficient": 0.0, "report_kl": False, "optimisation.autocast": False},
    )
    return str(trainer.train().policy)


def answers(policy: str) -> list[str]:
    """SAMPLES responses of the policy to each held-out prompt."""
    import torch

    from assay.domain import Message
    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_causal_lm, load_tokenizer
    from assay_serving.generative.generation import SamplingParams, generate
    from assay_serving.generative.local import end_tokens

    tokenizer = load_tokenizer(policy)
    model = load_causal_lm(policy, tokenizer, dtype=torch.float32, device=torch.device("cpu"))
    renderer = Renderer(tokenizer, max_length=256)
    prompts = [renderer.encode((Message("user", f"Say item {n}."),)).ids for n in range(HELD_OUT)]
    drawn = generate(
        model,
        prompts,
        SamplingParams(TOKENS, temperature=1.0, top_p=1.0),
        samples=SAMPLES,
        ends=end_tokens(model.generation_config, renderer),
        seed=1,
    )
    return [str(tokenizer.decode(list(one.ids), skip_special_tokens=True)) for group in drawn for one in group]


def win_rate(texts: list[str], base: list[str], name: str) -> float:
    """Of pairs of responses to one held-out prompt: the share that satisfies the principle more, ties half."""
    from assay_serving.verifiers import constraint_from_dict

    [check] = [constraint_from_dict(payload) for payload in PRINCIPLES[name]["constraints"]]
    pairs = [(check.check(one).passed, check.check(other).passed) for one, other in zip(texts, base, strict=True)]
    return statistics.fmean((one > other) + 0.5 * (one == other) for one, other in pairs)


if __name__ == "__main__":
    main()
