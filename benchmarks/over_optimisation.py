"""Does the watch catch over-optimisation? A policy trained on a weak reward model of ours, a verifier held out.

The reward model is a small transformer (--reward-base, by default the few thousand weights of `tiny`) trained by
`assay train bt` on pairs of SmolLM2's own responses that the verifier labelled; the policy then maximises it with no KL
term. The verifier scores half of the rollouts and is not trained on. Printed: reward, held-out pass rate, KL and length
by step, the reward model's held-out accuracy beside that of choosing the longer response, the step at which the watch
speaks up, and whether people were sent pairs. Nothing stops the run, so that one sees what the watch saved. Products
are bfloat16 where the processor has them.

    python benchmarks/over_optimisation.py --save-baseline --plot docs/policy-training/over-optimisation.svg
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.runs.callbacks import StepCallback
from assay_serving.model_config import ModelConfig
from measure import Report, arguments, picture

MEASURES = (
    "policy_training/assay_policy_training/plugins/watch",
    "policy_training/assay_policy_training/training",
)

SEED = 0


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--policy", default=None, help="default: smollm2; quick: tiny")
    parser.add_argument("--reward-base", default="tiny")
    parser.add_argument(
        "--pair-prompts", type=int, default=None, help="prompts to make pairs of (default: 96; quick: 16)"
    )
    parser.add_argument("--steps", type=int, default=None, help="default: 40; quick: 12")
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--plot", type=picture, default=None, help="draw the curves (needs matplotlib)")
    options = parser.parse_args()
    options.policy = options.policy or ("tiny" if options.quick else "smollm2")
    options.steps = options.steps or (12 if options.quick else 40)
    options.pair_prompts = options.pair_prompts or (16 if options.quick else 96)
    report = Report("over_optimisation", measures=MEASURES)
    columns = ("policy", "reward_base", "pair_prompts", "steps", "lr", "max_new_tokens")
    report.figures = {name: getattr(options, name) for name in columns}
    runs = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as scratch:
            runs.append(one(options, Path(scratch), seed))
    report.figures["runs"] = [{k: v for k, v in run.items() if k != "rows"} for run in runs]
    report.figures["curves"] = [[curve_point(row) for row in run["rows"]] for run in runs]
    for run in runs:
        print(json.dumps({k: v for k, v in run.items() if k != "rows"}))
    if options.plot:
        draw(runs, options.plot)
    report.finish(options)


def curve_point(row: dict[str, Any]) -> list[float | None]:
    """The step, then CURVES; None where the step has no such number."""
    return [row["step"], *(round(row[name], 4) if name in row else None for name in CURVES)]


CURVES = ("reward_mean", "held_out_reward_mean", "kl_k3", "length_mean")


def one(options: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """One seed: pairs, reward model, policy; every step's numbers in `rows`."""
    from assay.models.devices import has_fast_bfloat16, pick_device
    from assay.workspace import Workspace
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.recipe.loading import load_recipe
    from assay_policy_training.rollouts.rewards import ModelReward, VerifierReward
    from assay_policy_training.training.held_out_reward import SUSPECTS_FILE, HeldOutReward, WatchSettings
    from assay_policy_training.training.loop import PolicyLoop
    from assay_serving.engines.transformers import TransformersScorer

    overrides = [f"seed={seed}", f"steps={options.steps}", f"optimisation.lr={options.lr}", "checkpoint_every=0"]
    overrides += ["optimisation.micro_batch_rows=16", "sampling.prompts_per_step=4"]
    device = pick_device()
    autocast = has_fast_bfloat16(device)
    overrides += [f"sampling.max_new_tokens={options.max_new_tokens}", f"optimisation.autocast={str(autocast).lower()}"]
    recipe = load_recipe("dr_grpo", overrides)
    policy = Policy(options.policy, device=device, max_prompt_tokens=512, with_reference=True, autocast=autocast)
    items = prompts_of(options.pair_prompts, seed)
    sampler = recipe.sampler.open(policy, recipe.sampling)
    accuracy = {}
    workspace = folder / "workspace"
    Workspace.create(workspace)
    pairs = {}
    for split, chosen in (("train", items[: len(items) * 3 // 4]), ("test", items[len(items) * 3 // 4 :])):
        pairs[split] = folder / f"{split}.jsonl"
        rows = labelled(sampler, chosen, seed)
        pairs[split].write_text("".join(json.dumps(row) + "\n" for row in rows))
        longer = fmean(0.5 + 0.5 * _sign(len(row["chosen"]) - len(row["rejected"])) for row in rows)
        accuracy[split] = {"pairs": len(rows), "choosing_the_longer": round(longer, 3)}
    command = [sys.executable, "-m", "assay.cli", "train", "bt", "--data", str(pairs["train"])]
    command += ["--eval-data", str(pairs["test"]), "--base", options.reward_base, "--name", "proxy", "--json"]
    command += ["--epochs", "6", "--lr", "0.003" if options.reward_base == "tiny" else "3e-5", "-w", str(workspace)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    trained = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip().startswith("{") else {}
    scorer = TransformersScorer.load(ModelConfig(str(workspace / "models" / "proxy")))
    accuracy["test"]["reward_model"] = held_out_accuracy(scorer, pairs["test"])
    watch = HeldOutReward([VerifierReward()], folder, WatchSettings(share=0.5, seed=seed))
    source = recipe.source.open(prompts_of(512, seed + 1000), seed=seed, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [ModelReward(scorer)], folder, extra=[watch])
    rows = trainer.train(callbacks=[StepCallback(lambda row: print(line(seed, row), flush=True))])
    caught = next((row["step"] for row in rows if row.get("overoptimised")), None)
    held = [row["held_out_reward_mean"] for row in rows if "held_out_reward_mean" in row]
    window = min(5, len(held))
    means = [fmean(held[i : i + window]) for i in range(len(held) - window + 1)]
    suspects = (folder / SUSPECTS_FILE).read_text().splitlines()
    return {
        "seed": seed,
        "products": "bfloat16" if autocast else "float32",
        "pairs": accuracy,
        "caught_at_step": caught,
        "held_out_best": {"mean_of_5_steps": round(max(means), 4), "last_step": means.index(max(means)) + window},
        "held_out_first_and_last": [round(means[0], 4), round(means[-1], 4)],
        "reward_first_and_last": [round(rows[0]["reward_mean"], 4), round(rows[-1]["reward_mean"], 4)],
        "pairs_for_people": len(suspects),
        "reward_model_run": trained.get("run"),
        "rows": rows,
    }


def prompts_of(n: int, seed: int) -> list[Any]:
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.plugins.prompts.constrained import generate_prompts

    return [PromptItem(p.prompt, p.constraints, p.to_meta()) for p in generate_prompts(n, seed, split="train")]


def labelled(sampler: Any, items: Sequence[Any], seed: int) -> list[dict[str, Any]]:
    """Pairs of responses to one prompt of which one meets more constraints, at most four a prompt."""
    from assay_serving.verifiers import verify

    rows = []
    for start in range(0, len(items), 8):
        part = items[start : start + 8]
        batch = sampler.rollout(part, 8, seed=seed * 1000 + start, version=0)
        for number, item in enumerate(part):
            texts = sorted({t for t in batch.responses[8 * number : 8 * number + 8] if t.strip()})
            share = {text: verify(item.constraints, text).fraction for text in texts}
            better = [
                (a, b) if share[a] > share[b] else (b, a) for a, b in combinations(texts, 2) if share[a] != share[b]
            ]
            prompt = [message.to_dict() for message in item.prompt]
            rows += [{"prompt": prompt, "chosen": a, "rejected": b} for a, b in better[:4]]
    return rows


def held_out_accuracy(scorer: Any, path: Path) -> float:
    from assay.domain import prompt_of
    from assay_serving.scorer import ScoreItem

    rows = [json.loads(row) for row in path.read_text().splitlines()]
    score_items = [ScoreItem(prompt_of(r["prompt"]), r[side]) for r in rows for side in ("chosen", "rejected")]
    rewards = [score.reward for score in scorer.score(score_items)]
    return round(fmean(a > b for a, b in zip(rewards[::2], rewards[1::2], strict=True)), 3)


def line(seed: int, row: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {row[name]:.3f}" for name in CURVES if name in row)
    return f"seed {seed}, step {row['step']}: {values}" + (", over-optimised" if row.get("overoptimised") else "")


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Reward and held-out pass rate by step, the watch's word as a line across."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    other = axes.twinx()
    for run in runs:
        steps = [row["step"] for row in run["rows"]]
        axes.plot(steps, [row["reward_mean"] for row in run["rows"]], color="C0", label="reward trained on")
        held = [(row["step"], row["held_out_reward_mean"]) for row in run["rows"] if "held_out_reward_mean" in row]
        other.plot(*zip(*held, strict=True), color="C1", label="verifier, held out")
        if run["caught_at_step"]:
            axes.axvline(run["caught_at_step"], color="0.4", linestyle="--")
    axes.set_xlabel("step (dashed: the watch speaks up)")
    axes.set_ylabel("reward trained on", color="C0")
    other.set_ylabel("share of constraints met, held out", color="C1")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
