"""A small policy training with rollout actors, parts of it that hold still, and one run as a process to be killed:
`python async_training.py FOLDER MODEL LAG ACTORS` trains until its third step is done, then writes `held` and waits."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.domain import Message
from assay.models.parallelism.strategy import SingleProcess
from assay.runs.callbacks import StepCallback
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Rewards, RewardSource
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.loop import PolicyLoop

ITEMS = [PromptItem((Message("user", f"Name colour {n}."),), (), {"number": n}) for n in range(6)]
STEPS = 4


def hold() -> None:
    """Until this process is killed."""
    while True:
        time.sleep(60)


class LetterShare:
    name = "letters"

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        share = [sum(c.isalpha() for c in text) / max(1, len(text)) for text in responses]
        return Rewards({self.name: torch.tensor(share, dtype=torch.float64)}, [()] * len(items), [{}] * len(items))


class HoldingSampler(TransformersSampler):
    marker: Path
    number: int | None
    spared: int

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        if os.getppid() != self.spared and self.number in (None, *(item.meta["number"] for item in items)):
            try:
                with self.marker.open("x") as stream:
                    stream.write(str(os.getpid()))
            except FileExistsError:
                pass
            else:
                hold()
        return super().rollout(items, group_size, seed=seed, version=version)


class Holding(RecipeSettings, section="sampler"):
    """S2. The first process that is asked for prompt `number` (None: any) writes its id to `marker` and does nothing
    more. `spared`: parent of processes that do not."""

    marker: str
    number: int | None = 0
    spared: int = 0

    def open(self, policy: Policy, sampling: Sampling) -> HoldingSampler:
        sampler = HoldingSampler(policy, sampling)
        sampler.marker, sampler.number, sampler.spared = Path(self.marker), self.number, self.spared
        return sampler


def recipe_with(**asynchrony: Any) -> Recipe:
    recipe = load_recipe("grpo")
    sampling = Sampling(prompts_per_step=4, group_size=3, max_new_tokens=10, max_prompt_tokens=128)
    optimisation = replace(recipe.optimisation, lr=1e-2, micro_batch_rows=4, warmup_steps=0)
    return replace(
        recipe,
        sampling=sampling,
        optimisation=optimisation,
        asynchrony=Asynchrony(**asynchrony),
        kl=replace(recipe.kl, coefficient=0.0),
        report_kl=False,
        steps=STEPS,
        checkpoint_every=1,
    )


def save_model(folder: Path) -> str:
    """A policy whose rows end at different lengths: those of the tiny model alone nearly never do."""
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=128)
    policy.model.generation_config.eos_token_id = list(range(0, 256, 9))
    policy.save(folder)
    return str(folder)


def trainer(
    recipe: Recipe,
    folder: Path,
    model: str = "tiny",
    rewards: Sequence[RewardSource] = (),
    *,
    on: str = "local",
    parallel: SingleProcess | None = None,
) -> PolicyLoop:
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True, parents=True)
    policy = Policy(model, device=torch.device("cpu"), max_prompt_tokens=128, lora=recipe.lora)
    policy.divide(parallel or SingleProcess())
    prompts = ShuffledPrompts(ITEMS, seed=0)
    return PolicyLoop(recipe, policy, prompts, list(rewards) or [LetterShare()], folder, on=on)


def main(folder: Path, model: str, lag: int, actors: int) -> None:
    made = trainer(recipe_with(lag=lag, actors=actors), folder, model)

    def on_step(row: Any) -> None:
        if row["step"] == STEPS - 1:
            pool = made.collector.pool
            assert pool is not None
            pids = [actor.pid for actor in pool._actors if actor is not None]  # type: ignore[attr-defined]
            (folder / "held.part").write_text(json.dumps(pids))
            (folder / "held.part").rename(folder / "held")
            hold()

    made.train(callbacks=[StepCallback(on_step)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
