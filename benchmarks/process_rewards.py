"""What do step rewards gain over the outcome's alone? GRPO against PAV and GRPO with process supervision, by seeds.

A lock: so many letters in the right order, each a step with four letters of its own, which the base policy opens once
in 4^letters tries; the prover is the same model taught to open it about every second time. All arms have the same
prompts, rollouts a step, steps and learning rate; the prover's continuations, which `pav` and `process_grpo` pay for,
come on top and are counted. `oracle` is `pav` with the share of right letters so far in place of the prover's values.
`form` is GRPO on the form alone (some letter of each step's four, in the right number and order): what length and
format are worth. Success is exact: the product of the policy's probabilities of the right response, and of its end.

Fixed before the seeds that are published, on seed 0 with 4 letters: four letters of its own for each step (with the
same four for all, what is learned of one step is unlearned of the others in so small a model), learning rate 1e-3 (no
arm fell), 8 continuations a prefix, 40 steps. There all arms learned alike, as 64 rollouts of the base hold a right
one every other step. 6 letters were not tried before. Expected: a gain of PAV and `oracle` over the outcome alone with
6 letters, where one rollout in 4,096 is right; none with 4. Published are seeds 101 and up, whole seeds of 6 letters
first, as many as there is time for.

With --gsm8k FILE the policy (--policy) continues recorded solutions from their last step but one, the prover is
best-of-4 of the policy itself, and success is sampled. Cells (one arm, one seed) are stored in --cells as they
are done; the same command goes on with what is missing.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from assay.data.row_files import file_rows
from assay.domain import Message, prompt_of
from assay.models.tiny import make_tiny
from assay.runs.json_log import read_metrics
from assay.score import Score
from assay.statistics.seeds import seed_interval
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.steps import split_steps, with_step_values
from assay_policy_training.plugins.estimators.step_rewards import ProcessGrpo
from assay_policy_training.plugins.modulators.steps import BlockProgress
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.prefix_values import PrefixSettings, ProverReward
from assay_policy_training.rollouts.rewards import VerifierReward, verifier_accuracy
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import MathAnswer, Regex
from measure import Report, arguments

MEASURES = (
    "policy_training/assay_policy_training/plugins",
    "policy_training/assay_policy_training/training",
)

CPU = torch.device("cpu")
ALPHABETS, RIGHT, SEPARATOR = ("abcd", "efgh", "ijkl", "mnop", "qrst", "uvwx"), "celntu", ";"
PROMPT = (Message("user", "open"),)
ARMS = ("grpo", "form", "process_grpo", "pav", "oracle")


class Truth:
    """The share of the lock's letters that are right up to each step, in place of a prover's values."""

    name = "process"

    def __init__(self, right: str) -> None:
        self.right = right.split(SEPARATOR)

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        values = [self.values(split_steps(response, SEPARATOR)) for response in responses]
        scores = [Score(row[-1], "truth", "1", "", 0, truncated=False) for row in values]
        parts = [{self.name: with_step_values(s, row, 0.0)} for s, row in zip(scores, values, strict=True)]
        outcomes = torch.tensor([row[-1] for row in values], dtype=torch.float64)
        return Rewards({self.name: outcomes}, [()] * len(values), parts)

    def values(self, steps: Sequence[str]) -> list[float]:
        count, values = 0, []
        for number, step in enumerate(steps):
            ended = step.endswith(SEPARATOR) or number + 1 == len(self.right)
            right = count == number < len(self.right) and step.removesuffix(SEPARATOR) == self.right[number] and ended
            count += right
            values.append(count / len(self.right))
        return values


def taught(folder: Path, share: float, seed: int, steps: int, right: str) -> Path:
    """A tiny model fitted to random letters, and to the right ones in this share of the rows."""
    make_tiny(folder, seed=seed)
    policy = Policy(str(folder), device=CPU, max_prompt_tokens=64)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    context, alphabets = list(policy.renderer.encode(PROMPT).ids), ALPHABETS[: len(right.split(SEPARATOR))]
    for _ in range(steps):
        rows = []
        for _ in range(32):
            letters = [of[int(torch.randint(4, (), generator=generator))] for of in alphabets]
            random = float(torch.rand((), generator=generator)) >= share
            rows.append(response_ids(policy, SEPARATOR.join(letters) if random else right))
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
def success(policy: Policy, right: str) -> float:
    """The probability of the right response."""
    context, answer = list(policy.renderer.encode(PROMPT).ids), response_ids(policy, right)
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


@dataclass(frozen=True)
class Task:
    """What all arms of a seed have in common. `right`: of a lock; None: gsm8k."""

    base: str
    prover: str
    items: list[PromptItem]
    held_out: list[PromptItem]
    right: str | None
    seed: int
    steps: int


def train(arm: str, task: Task) -> dict[str, Any]:
    recipe = load_recipe({"form": "grpo", "oracle": "pav"}.get(arm, arm))
    lock, seed = task.right is not None, task.seed
    tokens = len(str(task.right)) + 1 if lock else 64
    sampling = replace(recipe.sampling, prompts_per_step=8 if lock else 2, group_size=8, max_new_tokens=tokens)
    optimisation = replace(recipe.optimisation, lr=1e-3 if lock else 1e-5, warmup_steps=0, autocast=False)
    separator = SEPARATOR if lock else "\n"
    if isinstance(recipe.estimator, ProcessGrpo):
        recipe = replace(recipe, estimator=replace(recipe.estimator, separator=separator))
    modulators = tuple(
        replace(m, separator=separator) if isinstance(m, BlockProgress) else m for m in recipe.modulators
    )
    recipe = replace(
        recipe, sampling=sampling, optimisation=optimisation, modulators=modulators, seed=seed, checkpoint_every=0
    )
    policy = Policy(task.base, device=CPU, max_prompt_tokens=512, with_reference=recipe.needs_reference)
    rewards: list[Any] = [VerifierReward()]
    items = task.items
    if arm == "oracle":
        rewards.append(Truth(str(task.right)))
    elif arm == "form":
        form = SEPARATOR.join(f"[{of}]" for of in ALPHABETS[: len(str(task.right).split(SEPARATOR))])
        items = [replace(item, constraints=(Regex(form),)) for item in items]
    elif arm != "grpo":
        of_prefixes = PrefixSettings(
            samples=8, best_of=1 if lock else 4, max_new_tokens=tokens, separator=separator, seed=seed
        )
        rewards.append(ProverReward(Policy(task.prover, device=CPU, max_prompt_tokens=512), of_prefixes))
    with tempfile.TemporaryDirectory() as folder:
        prompts = recipe.source.open(items, seed=seed, policy=policy)
        PolicyLoop(recipe, policy, prompts, rewards, Path(folder)).train(task.steps)
        rates = [row["verifier_pass_rate"] for row in read_metrics(Path(folder))]
    end = success(policy, task.right) if task.right is not None else sampled_success(policy, task.held_out, tokens)
    continued = rewards[1].estimator.generated if arm in ("pav", "process_grpo") else 0
    return {"success": round(end, 4), "prover_tokens": continued, "first_pass_rate": statistics.mean(rates[:10])}


def gsm8k_task(options: Any, seed: int) -> Task:
    listed = gsm8k_items(options.gsm8k, 16 if options.quick else 128)
    half = len(listed) // 2
    return Task(options.policy, options.policy, listed[:half], listed[half:], None, seed, options.steps)


def lock_task(letters: int, scratch: Path, seed: int, steps: int) -> Task:
    right = SEPARATOR.join(RIGHT[:letters])
    base, prover = (str(taught(scratch / name, p, seed, 150, right)) for name, p in (("base", 0.0), ("prover", 0.5)))
    items = [PromptItem(PROMPT, (Regex(right),))] * 8
    return Task(base, prover, items, items, right, seed, steps)


def start_of(task: Task) -> dict[str, Any]:
    """Success before training: of the base, and of the prover."""
    base, prover = (Policy(model, device=CPU, max_prompt_tokens=512) for model in (task.base, task.prover))
    if task.right is not None:
        return {"base": round(success(base, task.right), 4), "prover": round(success(prover, task.right), 4)}
    return {"base": sampled_success(base, task.held_out, 64)}


def mean_interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean with Student's 95 % interval over seeds."""
    figure: dict[str, Any] = {"mean": round(statistics.mean(values), 4), "seeds": len(values)}
    if (interval := seed_interval(values)) is not None:
        figure["interval"] = [round(interval.low, 4), round(interval.high, 4)]
    return figure


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=None, help="default: 5; quick: 2")
    parser.add_argument("--first-seed", type=int, default=101)
    parser.add_argument("--steps", type=int, default=None, help="default: 40; quick: 10")
    parser.add_argument("--letters", type=int, nargs="+", default=None, help="default: 6 4; quick: 4")
    parser.add_argument("--arms", nargs="+", default=None, choices=ARMS, help="default: all; gsm8k: those it has")
    parser.add_argument("--cells", type=Path, default=None, help="JSON Lines file of finished cells")
    parser.add_argument("--gsm8k", type=Path, default=None, help="rows with meta.solution and meta.answer")
    parser.add_argument("--policy", default="smollm2", help="with --gsm8k")
    options = parser.parse_args()
    options.seeds = options.seeds or (2 if options.quick else 5)
    options.steps = options.steps or (10 if options.quick else 40)
    tasks = ["gsm8k"] if options.gsm8k else [f"lock {n}" for n in options.letters or ([4] if options.quick else [6, 4])]
    arms = options.arms or (ARMS if options.gsm8k is None else ("grpo", "process_grpo", "pav"))
    done: dict[tuple[str, int, str], dict[str, Any]] = {}
    if options.cells is not None and options.cells.is_file():
        cells = [json.loads(line) for line in options.cells.read_text().splitlines()]
        done = {(c["task"], c["seed"], c["arm"]): c for c in cells if c["steps"] == options.steps}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in tasks:
            missing = [arm for arm in ("start", *arms) if (name, seed, arm) not in done]
            if not missing:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                if name == "gsm8k":
                    task = gsm8k_task(options, seed)
                else:
                    task = lock_task(int(name.split()[1]), Path(scratch), seed, options.steps)
                for arm in missing:
                    started = time.process_time()
                    figures = start_of(task) if arm == "start" else train(arm, task)
                    cell = {"task": name, "seed": seed, "arm": arm, "steps": options.steps, **figures}
                    cell["cpu_s"] = round(time.process_time() - started, 1)
                    done[name, seed, arm] = cell
                    print(json.dumps(cell), flush=True)
                    if options.cells is not None:
                        with options.cells.open("a") as stream:
                            stream.write(json.dumps(cell) + "\n")
    report = Report("process_rewards", measures=MEASURES)
    report.figures["steps"] = options.steps
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for name in tasks:
        rows = {"base": {"success": mean_interval([done[name, s, "start"]["base"] for s in seeds])}}
        if name != "gsm8k":
            rows["prover"] = {"success": mean_interval([done[name, s, "start"]["prover"] for s in seeds])}
        for arm in arms:
            each = [done[name, s, arm] for s in seeds]
            rows[arm] = {"success": mean_interval([cell["success"] for cell in each])}
            if arm != "grpo" and "grpo" in arms:
                gains = [cell["success"] - done[name, cell["seed"], "grpo"]["success"] for cell in each]
                rows[arm]["less outcome alone"] = mean_interval(gains)
            rows[arm]["prover tokens"] = {"mean": statistics.mean(cell["prover_tokens"] for cell in each)}
        report.figures[name] = rows
        for row, figures in rows.items():
            print(f"{name}, {row}: {json.dumps(figures)}")
    report.finish(options)


if __name__ == "__main__":
    main()
