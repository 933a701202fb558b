"""Policy training in several processes: what the first process sends to the others, and what they do with it.

Covers: the configuration of the run, the calls that all processes make together (loading, resuming, training; of
divided weights also evaluating and saving). Leaves out: the run record, evaluating and saving where weights are not
divided, which the first process does alone (`run`); how they are divided (`assay.models.parallelism.strategy`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.errors import BadInputError
from assay.models.memory_options import MOMENT_BYTES
from assay.models.parallelism.distributed import Parallel, ProcessGroup, local_device
from assay.models.parallelism.process_group import worker_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import RewardSource, StepMetrics
from assay_policy_training.plugins.samplers.transformers import Transformers
from assay_policy_training.recipe.loading import recipe_from_dict
from assay_policy_training.rollouts.functions.source import CallSettings
from assay_policy_training.training.checkpoint_choice import CheckpointChoice
from assay_policy_training.training.evaluation import PolicyEvaluation, ScheduledEvaluation, join_evaluation
from assay_policy_training.training.loop import PolicyLoop


@dataclass(frozen=True)
class WorkerConfig:
    """What every process of a run needs. `policy`, `teacher`: folders or hub ids; `rewards`: as on the command line."""

    recipe: dict[str, Any]
    policy: str
    teacher: str | None
    prompts: tuple[PromptItem, ...]
    rewards: tuple[str, ...]
    device: str
    parallel: Parallel
    on: str  #: where rollout actors are
    calls: CallSettings  #: of reward functions
    media: Path | None = None  #: the workspace's images
    evaluations: int = 0  #: sets of prompts that are evaluated before and after
    eval_every: int = 0  #: steps between evaluations of all sets, 0 = none

    def load(self, device: torch.device) -> Policy:
        """The policy with all its weights."""
        recipe = recipe_from_dict(self.recipe)
        return Policy(
            self.policy,
            device=device,
            max_prompt_tokens=recipe.sampling.max_prompt_tokens,
            autocast=recipe.optimisation.autocasts(device),
            gradient_checkpointing=recipe.optimisation.gradient_checkpointing,
            offload_activations=recipe.optimisation.offload_activations,
            lora=recipe.lora,
            with_reference=recipe.needs_reference,
            teacher=self.teacher,
            chat=recipe.chat,
            media=self.media,
            moment_bytes=MOMENT_BYTES[recipe.optimisation.optimizer],
        )

    def begin(
        self,
        parallel: SingleProcess,
        device: torch.device,
        rewards: Sequence[RewardSource],
        folder: Path,
        extra: Sequence[StepMetrics] = (),
        choice: CheckpointChoice | None = None,
    ) -> PolicyLoop:
        """A trainer for this process's share."""
        recipe = recipe_from_dict(self.recipe)
        with parallel.loading():
            policy = self.load(device)
        policy.divide(parallel)
        source = recipe.source.open(self.prompts, seed=recipe.seed, policy=policy)  # some read prompts with its weights
        return PolicyLoop(recipe, policy, source, rewards, folder, extra=extra, on=self.on, choice=choice)


def run_worker(open_rewards: Callable[[WorkerConfig], Sequence[RewardSource]]) -> None:
    """All that a process other than the first does. `open_rewards`: the sources that the configuration names.

    Raises as `worker_group`.
    """
    with worker_group() as group:
        config: WorkerConfig = group.share(None)
        device = local_device(config.device)
        parallel = parallel_strategy(config.parallel, group, device)
        sampling = recipe_from_dict(config.recipe).sampling

        def join(when: str, policy: Policy) -> dict[str, PolicyEvaluation]:
            for _ in range(config.evaluations if parallel.equal_passes else 0):
                join_evaluation(policy, sampling)
            return {}

        extra = [ScheduledEvaluation(config.eval_every, join)] if config.eval_every else []
        with reported_once(group):
            trainer = config.begin(parallel, device, open_rewards(config), Path(os.devnull), extra)
        join("before", trainer.policy)
        trainer.resume()
        with closing(trainer):
            trainer.train()
        trainer.save_checkpoint()  # together with the first process, which writes it
        if parallel.equal_passes:
            save_divided(trainer, config.prompts, None)
        join("after", trainer.policy)


@contextmanager
def reported_once(group: ProcessGroup) -> Iterator[None]:
    """Around what all processes do alike: bad input that the first process reports, too, ends this one quietly."""
    try:
        yield
    except BadInputError as error:
        if group.first_failure() == (0, str(error)):
            raise SystemExit(error.exit_code) from error
        raise


def save_divided(
    trainer: PolicyLoop, prompts: Sequence[PromptItem], target: Path | None
) -> tuple[RolloutBatch, torch.Tensor]:
    """Save a divided policy from its shares to `target` (None in all processes but the first, which call this with it);
    one short rollout and its log-probs (`Policy.float32_logp`), to compare the saved one with. Raises as
    `Policy.save`."""
    policy, recipe = trainer.policy, trainer.recipe
    if target is not None:
        policy.save(target)
    else:
        policy.write_weights(Path(os.devnull))
    sampler = recipe.opened_sampler(policy, Transformers())
    with policy.gathered_parameters():
        probe = sampler.rollout(prompts[:1], 1, seed=recipe.seed, version=trainer.updates)
    return probe, policy.float32_logp(probe)
