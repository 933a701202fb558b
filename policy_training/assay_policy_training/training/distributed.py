"""One policy training in several processes: what the first tells the others, and what the others do.

Covers: the order that is given, the calls that all make together: policy, prompts, going on from a checkpoint,
training, the policy in one piece. Leaves out: the run record, evaluation and saving, which the first process does alone
(`run`); how work and weights are divided (`assay.models.parallelism.strategy`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.errors import BadInputError
from assay.models.devices import pick_device
from assay.models.parallelism.distributed import Parallel, PeerFailedError, joined, local_device
from assay.models.parallelism.strategy import Alone, division, resolve
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.protocols import Metrics, PromptItem, RewardSource
from assay_policy_training.recipe.loading import recipe_from_dict
from assay_policy_training.training.loop import PolicyTrainer


@dataclass(frozen=True)
class Order:
    """What every process of a run has to know. `policy`, `teacher`: folders or hub ids; `rewards`: as given."""

    recipe: dict[str, Any]
    policy: str
    teacher: str | None
    prompts: tuple[PromptItem, ...]
    rewards: tuple[str, ...]
    device: str
    parallel: Parallel

    def load(self, device: torch.device) -> Policy:
        """The policy, whole."""
        recipe = recipe_from_dict(self.recipe)
        return Policy(
            self.policy,
            device=device,
            max_prompt_tokens=recipe.sampling.max_prompt_tokens,
            autocast=recipe.optimisation.autocast,
            gradient_checkpointing=recipe.optimisation.gradient_checkpointing,
            lora=recipe.lora,
            with_reference=recipe.needs_reference,
            teacher=self.teacher,
        )

    def begin(
        self,
        parallel: Alone,
        device: torch.device,
        rewards: Sequence[RewardSource],
        folder: Path,
        extra: Sequence[Metrics] = (),
    ) -> PolicyTrainer:
        """A trainer of this process's share."""
        recipe, policy = recipe_from_dict(self.recipe), self.load(device)
        source = recipe.source.open(self.prompts, seed=recipe.seed, policy=policy)
        policy.divide(parallel)
        return PolicyTrainer(recipe, policy, source, rewards, folder, extra=extra)


@contextmanager
def divided(order: Order) -> Iterator[tuple[Alone, torch.device]]:
    """For the first process: how the work is divided for the time of the block, and its device. The others have been
    told the order. Raises BadInputError where `order.parallel` does not fit the processes that there are."""
    if resolve(order.parallel) == "none":
        yield Alone(), pick_device(order.device)
        return
    device = local_device(order.device)
    with joined() as group:
        group.share(order)
        yield division(order.parallel, group, device), device


def follow(open_rewards: Callable[[Sequence[str]], Sequence[RewardSource]]) -> None:
    """What every process but the first does, from beginning to end. `open_rewards`: sources from their references.

    Raises what goes wrong here; what goes wrong in the first process is told there, and ends this one quietly.
    """
    try:
        with joined() as group:
            order: Order = group.share(None)
            device = local_device(order.device)
            parallel = division(order.parallel, group, device)
            try:
                trainer = order.begin(parallel, device, open_rewards(order.rewards), Path(os.devnull))
            except BadInputError as error:
                if group.told() == (0, str(error)):  # the first process was refused the same, and says so
                    raise SystemExit(error.exit_code) from error
                raise
            trainer.resume()
            trainer.train()
            parallel.whole(trainer.policy, lambda: trainer.policy)
    except PeerFailedError as error:
        if error.rank == 0:
            raise SystemExit(error.exit_code) from error
        raise
