"""What do step rewards gain over the outcome's alone? GRPO against PAV and GRPO with process supervision, by seeds.

A lock: four letters in the right order, each a step, which the base policy opens once in 256 tries; the prover is the
same model taught to open it about every second time. All arms have the same prompts, rollouts a step, and steps;
the prover's continuations, which PAV and process supervision pay for, come on top and are counted. Success is exact:
the product of the policy's probabilities of the right response. With --gsm8k FILE the policy (--policy) continues
recorded solutions from their last step but one, the prover is best-of-4 of the policy itself, and success is sampled.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.data.row_files import file_rows
from assay.domain import Message, prompt_of
from assay.models.tiny import make_tiny
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.estimators.step_rewards import ProcessGrpo
from assay_policy_training.plugins.modulators.steps import BlockProgress
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.prefix_values import PrefixSettings, ProverReward
from assay_policy_training.rollouts.rewards import VerifierReward, verifier_accuracy
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import MathAnswer, Regex
from measure import Report, arguments

CPU = torch.device("cpu")
LETTERS, RIGHT, SEPARATOR = ("abcd", "efgh", "ijkl", "mnop"), "c;e;l;n", ";"
PROMPT = (Message("user", "open"),)
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}
ARMS = ("grpo", "pav", "process_grpo")


def taught(folder: Path, share: float, seed: int, steps: int) -> Path:
    """A tiny model fitted to random letters, and to the right ones in this share of the rows."""
    make_tiny(folder, seed=seed)
    policy = Policy(str(folder), device=CPU, max_prompt_tokens=64)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    context = list(policy.renderer.encode(PROMPT).ids)
    for _ in range(steps):
        rows = []
        for _ in range(32):
            letters = [of[int(torch.randint(len(of), (), generator=generator))] for of in LETTERS]
            random = float(torch.rand((), generator=generator)) >= share
            rows.append(response_ids(policy, SEPARATOR.join(letters) if random else RIGHT))
        ids = torch.tensor([context + row for row in rows])
        logits = policy.model(ids).logits[:, len(context) - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, len(context) :].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    policy.model.save_pretrained(folder)
    return folder


def response_ids(policy: Policy, text: str) -> list[int]:
    return [*policy.tokenizer(text, add_special_tokens=False)["input_ids"], int(policy.tokenizer.eos_token_id)]


@torch.no_grad()
def success(policy: Policy) -> float:
    """The probability of the right response."""
    context, answer = list(policy.renderer.encode(PROMPT).ids), response_ids(policy, RIGHT)
    logp = policy.model(torch.tensor([context + answer])).logits[0, len(context) - 1 : -1].log_softmax(-1)
    return float(logp.gather(1, torch.tensor(answer)[:, None]).sum().exp())


def sampled_success(policy: Policy, items: Sequence[PromptItem], tokens: int) -> float:
    batch = TransformersSampler(policy, Sampling(max_new_tokens=tokens)).rollout(items, 4, seed=1, version=0)
    return float(verifier_accuracy(batch.items, list(batch.responses)).mean())


def gsm8k_items(path: Path, limit: int) -> list[PromptItem]:
    """Problems whose solution is given up to its last step but one."""
    items: list[PromptItem] = []
    for _, row in file_rows(path):
        lines = str(row["meta"]["solution"]).split("\n")[:-1]  # the last line repeats the answer
        if len(lines) >= 3 and len(items) < limit:
            begun = "\n".join(lines[:-1]) + "\n"
            items.append(PromptItem(prompt_of(row["prompt"]), (MathAnswer(str(row["meta"]["answer"])),), forced=begun))
    return items


def train(
    arm: str, options: Any, base: str, prover: str, items: list[PromptItem], held_out: list[PromptItem], seed: int
) -> dict[str, Any]:
    recipe = load_recipe(arm)
    lock, tokens = options.gsm8k is None, 8 if options.gsm8k is None else 64
    sampling = replace(recipe.sampling, prompts_per_step=8 if lock else 2, group_size=8, max_new_tokens=tokens)
    optimisation = replace(recipe.optimisation, lr=1e-3 if lock else 1e-5, warmup_steps=0, autocast=False)
    separator = SEPARATOR if lock else "\n"
    if isinstance(recipe.estimator, ProcessGrpo):
        recipe = replace(recipe, estimator=replace(recipe.estimator, separator=separator))
    modulators = tuple(
        replace(m, separator=separator) if isinstance(m, BlockProgress) else m for m in recipe.modulators
    )
    recipe = replace(
        recipe, sampling=sampling, optimisation=optimisation, modulators=modulators, seed=seed, checkpoint_every=10**6
    )
    policy = Policy(base, device=CPU, max_prompt_tokens=512, with_reference=recipe.needs_reference)
    rewards: list[Any] = [VerifierReward()]
    settings = PrefixSettings(
        samples=16, best_of=1 if lock else 4, max_new_tokens=tokens, separator=separator, seed=seed
    )
    if arm != "grpo":
        rewards.append(ProverReward(Policy(prover, device=CPU, max_prompt_tokens=512), settings))
    with tempfile.TemporaryDirectory() as folder:
        prompts = recipe.source.open(items, seed=seed, policy=policy)
        PolicyLoop(recipe, policy, prompts, rewards, Path(folder)).train(options.steps)
    end = success(policy) if lock else sampled_success(policy, held_out, tokens)
    continued = rewards[1].estimator.generated if arm != "grpo" else 0
    return {"success": round(end, 4), "prover_tokens": continued}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=None, help="default: 5; quick: 2")
    parser.add_argument("--steps", type=int, default=None, help="default: 40; quick: 20")
    parser.add_argument("--gsm8k", type=Path, default=None, help="rows with meta.solution and meta.answer")
    parser.add_argument("--policy", default="smollm2", help="with --gsm8k")
    options = parser.parse_args()
    options.seeds = options.seeds or (2 if options.quick else 5)
    options.steps = options.steps or (20 if options.quick else 40)
    report = Report("process_rewards")
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as scratch:
            if options.gsm8k is None:
                base = str(taught(Path(scratch) / "base", 0.0, seed, 150))
                prover = str(taught(Path(scratch) / "prover", 0.5, seed, 150))
                items = [PromptItem(PROMPT, (Regex(RIGHT),))] * 8
                held_out = items
                start = {
                    "base": success(Policy(base, device=CPU, max_prompt_tokens=64)),
                    "prover": success(Policy(prover, device=CPU, max_prompt_tokens=64)),
                }
            else:
                base = prover = options.policy
                listed = gsm8k_items(options.gsm8k, 16 if options.quick else 128)
                items, held_out = listed[: len(listed) // 2], listed[len(listed) // 2 :]
                start = {"base": sampled_success(Policy(base, device=CPU, max_prompt_tokens=512), held_out, 64)}
            runs.append(
                {
                    "seed": seed,
                    **start,
                    **{arm: train(arm, options, base, prover, items, held_out, seed) for arm in ARMS},
                }
            )
        print(json.dumps(runs[-1]), flush=True)
    report.figures = {"steps": options.steps, "runs": runs}
    for arm in ARMS[1:]:
        gains = [run[arm]["success"] - run["grpo"]["success"] for run in runs]
        figure: dict[str, Any] = {
            "by_seed": [round(gain, 4) for gain in gains],
            "mean": round(statistics.mean(gains), 4),
        }
        if len(gains) > 1:
            half = T95[len(gains) - 1] * statistics.stdev(gains) / math.sqrt(len(gains))
            figure["interval"] = [round(figure["mean"] - half, 4), round(figure["mean"] + half, 4)]
            figure["decided"] = abs(figure["mean"]) > half
        report.figures[f"success of {arm} less outcome alone"] = figure
        print(f"success of {arm} less outcome alone: {json.dumps(figure)}")
    report.finish(options)


if __name__ == "__main__":
    main()
