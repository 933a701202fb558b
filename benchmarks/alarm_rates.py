"""How often does the alarm for over-optimisation ring before a collapse, and how often without one?

Definitions, grid, split and targets are in docs/policy-training/alarms.md. `--run` trains the cells of the grid that
FILE does not have, one JSON line each; a run that was killed goes on where it was. `--fit` fixes weights and thresholds
of `alarm.yaml` on the calibration half. Without either the reported half is measured with the shipped file.

    python benchmarks/alarm_rates.py --run --device cuda --jobs 12 --out cells.jsonl [--minutes 6] [--policies tiny]
    python benchmarks/alarm_rates.py --fit --out cells.jsonl
    python benchmarks/alarm_rates.py --out cells.jsonl --json --save-baseline

`--quick` trains six short cells (about a minute on one core), to see that it works: their rates say nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from alarm_figures import fit, rates
from measure import Report, arguments

MEASURES = (
    "policy_training/assay_policy_training/plugins/watch",
    "policy_training/assay_policy_training/training",
)

STEPS, PROMPTS, GROUP, TOKENS, PROBES, PROBE_EVERY = 30, 16, 4, 24, 8, 5
#: What the tiny policy (random weights) can learn to meet; SmolLM2 gets prompts of all kinds.
TINY_KINDS = ("all_lowercase", "contains_number", "no_commas", "min_words", "max_words")
WARM_STEPS, WARM_LR, WARM_STARTS = 18, 1e-2, 4
SOUND = ("verifier", "noisy", "mostly_verifier", "chance", "rm_192+kl")
HACKABLE = ("letters", "long_words", "shorter", "longer", "rm_48", "rm_192")
UNSEEN = ("capitals", "exclaims")  #: rewards that calibration never saw
RATES = {"tiny": (5e-3, 1e-2), "smollm2": (3e-5, 5e-5)}  #: learning rates
KL = 0.3


@dataclass(frozen=True)
class Cell:
    """One training run: everything about it follows from these."""

    half: str  #: calibration, reported or quick
    policy: str
    recipe: str
    reward: str  #: of `alarm_rewards`; with +kl a KL loss of coefficient KL
    lr: float
    seed: int
    steps: int = STEPS

    @property
    def key(self) -> str:
        return "/".join(str(value) for value in asdict(self).values())


#: Recipes of each half, with the number of the first seed.
HALVES = {
    "calibration": ((("grpo", "rloo"), 1), (("dr_grpo", "reinforce_pp", "cispo"), 101)),
    "reported": ((("gspo", "opo", "reinforce_pp_baseline"), 201),),
}


def seeds_of(half: str, policy: str) -> dict[str, int]:
    """Reward -> seeds a recipe. In the reported half those that ended in a collapse before have more."""
    if policy == "smollm2":
        counts = dict.fromkeys((*SOUND, *HACKABLE), 1)
    elif half == "calibration":
        counts = dict.fromkeys(SOUND, 5) | dict.fromkeys(HACKABLE, 3)
    else:
        counts = dict.fromkeys(SOUND, 4) | dict.fromkeys(HACKABLE, 2) | dict.fromkeys(("shorter", "rm_48"), 4)
    if half == "reported":
        counts |= dict.fromkeys(UNSEEN, 1 if policy == "smollm2" else 4)
    return counts


def grid() -> list[Cell]:
    """In an order in which what is done after any time is spread over the grid."""
    cells = []
    for policy, (half, groups) in product(RATES, HALVES.items()):
        for recipes, first in groups:
            for recipe, (place, (reward, count)) in product(recipes, enumerate(seeds_of(half, policy).items())):
                turn = place if count == 1 else 0  # one seed alone: the rates take turns over the rewards
                cells += [
                    Cell(half, policy, recipe, reward, RATES[policy][(turn + number) % 2], first + number)
                    for number in range(count)
                ]
    places: dict[Cell, float] = {}
    for policy in RATES:
        own = [cell for cell in cells if cell.policy == policy]
        own.sort(key=lambda cell: (cell.seed % 100, hashlib.sha256(cell.key.encode()).digest()))
        places |= {cell: place / len(own) for place, cell in enumerate(own)}
    return sorted(cells, key=places.__getitem__)


def quick_cells() -> list[Cell]:
    return [
        Cell("quick", "tiny", "dr_grpo", reward, 1e-2, seed, 14)
        for seed in (1, 2)
        for reward in ("verifier", "letters", "noisy")
    ]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--run", action="store_true", help="train the cells that --out does not have")
    parser.add_argument("--fit", action="store_true", help="fix weights and thresholds on the calibration half")
    parser.add_argument("--out", type=Path, default=None, help="JSON lines, one a run")
    parser.add_argument("--device", default="cpu", help="of SmolLM2; the tiny policy always runs on the CPU")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--minutes", type=float, default=None, help="begin no cell after that; run again to go on")
    parser.add_argument("--policies", nargs="+", default=["tiny", "smollm2"])
    parser.add_argument("--halves", nargs="+", default=list(HALVES), help="of which to train the cells")
    options = parser.parse_args()
    if options.out is None and not options.quick:
        parser.error("--out FILE is needed (or --quick)")
    with tempfile.TemporaryDirectory() as scratch:
        out: Path = (options.out or Path(scratch) / "cells.jsonl").absolute()
        out.parent.mkdir(parents=True, exist_ok=True)
        if options.run or options.quick:
            cells = quick_cells() if options.quick else wanted(options)
            run(cells, out, options)
            if options.run:
                return
        runs = [run for run in read(out) if "rows" in run]
    if options.fit:
        fit([run for run in runs if run["cell"]["half"] == "calibration"])
        return
    report = Report("alarm_rates", measures=MEASURES)
    report.figures = {"cells": len(grid()), "with_a_result": len(runs)}
    report.figures |= rates([run for run in runs if run["cell"]["half"] == ("quick" if options.quick else "reported")])
    report.finish(options)


def wanted(options: argparse.Namespace) -> list[Cell]:
    return [cell for cell in grid() if cell.policy in options.policies and cell.half in options.halves]


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The runs of the file; a last line that a kill cut short is left out."""
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def run(cells: Sequence[Cell], out: Path, options: argparse.Namespace) -> None:
    """Train those that `out` lacks, `options.jobs` at a time; each result is on the disk before the next is begun."""
    done = {run["key"] for run in read(out) if "rows" in run}
    missing = [cell for cell in cells if cell.key not in done]
    started, warm = time.monotonic(), out.with_suffix(".warm")
    print(f"{len(cells) - len(missing)} of {len(cells)} cells are done", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context, initializer=one_thread) as pool, out.open("a") as file:
        if out.stat().st_size and not out.read_bytes().endswith(b"\n"):
            file.write("\n")
        if any(cell.policy == "tiny" for cell in missing):
            list(pool.map(warm_start, [warm] * WARM_STARTS, range(WARM_STARTS)))
        waiting, running = list(missing), set[Future[dict[str, Any]]]()
        while waiting or running:
            late = options.minutes is not None and time.monotonic() - started > 60 * options.minutes
            while waiting and len(running) < options.jobs and not late:
                running.add(pool.submit(attempt, waiting.pop(0), warm, options.device))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                result = future.result()
                file.write(json.dumps(result) + "\n")
                file.flush()
                os.fsync(file.fileno())
                state = result.get("error") or f"{result['seconds']:.1f} s"
                print(f"{time.monotonic() - started:6.0f} s  {result['key']}  {state}", flush=True)
    print(f"{len(waiting)} cells are missing" if waiting else "all cells are done", flush=True)


def one_thread() -> None:
    import logging

    import torch

    torch.set_num_threads(1)
    logging.getLogger("assay_policy_training").setLevel(logging.ERROR)


def prompts_of(policy: str, n: int, seed: int) -> list[Any]:
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.plugins.prompts.constrained import generate_prompts

    kinds = TINY_KINDS if policy == "tiny" else None
    prompts = generate_prompts(n, seed, split="train", kinds=kinds)
    return [PromptItem(p.prompt, p.constraints, p.to_meta()) for p in prompts]


def recipe_of(name: str, lr: float, seed: int, steps: int, extra: Sequence[str] = ()) -> Any:
    from assay_policy_training.recipe.loading import load_recipe

    overrides = [f"seed={seed}", f"steps={steps}", f"optimisation.lr={lr}", "checkpoint_every=0"]
    overrides += ["checkpoint_minutes=0", f"sampling.prompts_per_step={PROMPTS}", f"sampling.group_size={GROUP}"]
    overrides += [f"sampling.max_new_tokens={TOKENS}", "optimisation.micro_batch_rows=64", "optimisation.minibatches=1"]
    return load_recipe(name, [*overrides, "optimisation.autocast=false", *extra])


def warm_start(folder: Path, number: int) -> None:
    """A tiny policy that has learnt to meet the constraints, from the verifier, in `folder/number`."""
    import torch

    from assay_policy_training.core.policy import Policy
    from assay_policy_training.rollouts.rewards import VerifierReward
    from assay_policy_training.training.loop import PolicyLoop

    target = folder / str(number)
    if (target / "config.json").is_file():
        return
    recipe = recipe_of("dr_grpo", WARM_LR, number, WARM_STEPS, ["report_kl=false"])
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=512)
    source = recipe.source.open(prompts_of("tiny", 64, 9000 + number), seed=number, policy=policy)
    with tempfile.TemporaryDirectory() as scratch:
        PolicyLoop(recipe, policy, source, [VerifierReward()], Path(scratch)).train()
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        policy.save(Path(unfinished) / "policy")
        folder.mkdir(exist_ok=True)
        (Path(unfinished) / "policy").rename(target)


class Gold:
    """The verifier's word on every rollout of a step: what a collapse is defined by, and no signal of the alarm."""

    def measure(self, report: Any) -> dict[str, float]:
        from alarm_rewards import fraction

        batch = report.batch
        return {"gold": sum(map(fraction, batch.items, batch.responses)) / len(batch)}


def attempt(cell: Cell, warm: Path, device: str) -> dict[str, Any]:
    """`train`; a cell that fails is a line that says why, and is tried again by the next call."""
    try:
        return train(cell, warm, device)
    except Exception as error:
        return {"key": cell.key, "cell": asdict(cell), "error": f"{type(error).__name__}: {error}"}


def train(cell: Cell, warm: Path, device: str) -> dict[str, Any]:
    """One cell: what the alarm reads of each step, and gold."""
    import torch

    from alarm_rewards import reward_of
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.rollouts.rewards import VerifierReward
    from assay_policy_training.training.evaluation import ScheduledEvaluation, evaluate_policy
    from assay_policy_training.training.held_out_reward import HeldOutReward, WatchSettings
    from assay_policy_training.training.loop import PolicyLoop

    started, tiny = time.monotonic(), cell.policy == "tiny"
    reward_name, _, kl = cell.reward.partition("+")
    recipe = recipe_of(cell.recipe, cell.lr, cell.seed, cell.steps, [f"kl.coefficient={KL}"] if kl else [])
    base = str(warm / str(cell.seed % WARM_STARTS)) if tiny else cell.policy
    where = torch.device("cpu" if tiny else device)
    policy = Policy(base, device=where, max_prompt_tokens=512, with_reference=True)
    reward = reward_of(
        reward_name,
        cell.seed,
        recipe.sampler.open(policy, recipe.sampling),
        prompts_of(cell.policy, 96, 5000 + cell.seed),
    )
    source = recipe.source.open(prompts_of(cell.policy, PROMPTS, cell.seed), seed=cell.seed, policy=policy)
    probes, verifier = prompts_of(cell.policy, PROBES, 7000 + cell.seed), VerifierReward()

    def evaluate(_: str, evaluated: Policy) -> Mapping[str, Any]:
        sampling = recipe.sampling
        return {"": evaluate_policy(evaluated, probes, [verifier], sampling=sampling, samples=GROUP, seed=cell.seed)}

    with tempfile.TemporaryDirectory() as scratch:
        watch = HeldOutReward([verifier], Path(scratch), WatchSettings(share=1.0, seed=cell.seed))
        extra: list[Any] = [watch, ScheduledEvaluation(PROBE_EVERY, evaluate), Gold()]
        rows = PolicyLoop(recipe, policy, source, [reward], Path(scratch), extra=extra).train()
    return {
        "key": cell.key,
        "cell": asdict(cell),
        "rows": [slim(row) for row in rows],
        "seconds": round(time.monotonic() - started, 1),
        "device": where.type,
    }


def slim(row: Mapping[str, Any]) -> dict[str, float]:
    from assay_policy_training.plugins.watch.alarm import COLUMNS

    names = ("step", "gold", "eval_pass_rate", "entropy", "overoptimised", *COLUMNS)
    return {name: round(row[name], 6) for name in names if name in row}


if __name__ == "__main__":
    main()
