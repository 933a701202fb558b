"""The plan of a policy's training: what its step does with rollouts, and the end of the longest ones, on fake tensors.

Covers: policy, reference, critic and optimisers as a run loads them, `PolicyLoop.learn`, what transformers' sampler or
vLLM holds. Leaves out: rewards, environments, other samplers; cards and the plan's text (`assay.planning`).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from assay.domain import Message
from assay.models.attention.packing import can_pack
from assay.models.parallelism.strategy import SingleProcess
from assay.planning.cards import Card
from assay.planning.fake_ranks import fake_ranks
from assay.planning.fake_step import held, measured, planned
from assay.planning.made_up import text_of
from assay.planning.plan import MeasuredStep, MemoryPlan, OtherPart, check_format, make_plan
from assay.planning.request import PlanRequest
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.micro_batches import PassLimits, micro_batches
from assay_policy_training.core.policy import Policy, policy_renderer
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.mixtures import load_mixture
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.plugins.samplers.decoding_weights import cast_bytes
from assay_policy_training.plugins.samplers.key_value_cache import rows_that_fit
from assay_policy_training.plugins.samplers.transformers import Transformers, TransformersSampler
from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
from assay_policy_training.plugins.samplers.vllm.memory import engine_memory
from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler
from assay_policy_training.recipe.loading import recipe_to_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.prompt_length import select_prompts
from assay_policy_training.training.distributed import WorkerConfig
from assay_policy_training.training.loop import PolicyLoop
from assay_policy_training.training.optimiser import less_memory
from assay_policy_training.training.parallel_checks import check_memory
from assay_policy_training.training.run import Plan


@dataclass(frozen=True)
class PlannedPolicy:
    """Rollouts are taken to be as long as they may be. `base`: what to load."""

    plan: Plan
    base: str
    card: Card
    request: PlanRequest
    ranks: int = 1
    setting: str = "--set optimisation.micro_batch_tokens"

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    @cached_property
    def sizes(self) -> tuple[int, int]:
        sampling = self.recipe.sampling
        with self._loop(self.recipe) as (loop, _):
            batch = self._rollouts(loop.policy)
            rows = self._rows(batch, loop, PassLimits.of(self.recipe.optimisation, loop.policy.device))
        prompt, own = int(batch.train_mask[0].sum()), sampling.max_new_tokens
        prompts = -(-rows // sampling.group_size) if can_pack(loop.policy.model) else rows
        return prompt + own, prompts * prompt + rows * own

    def _rows(self, batch: RolloutBatch, loop: PolicyLoop, limits: PassLimits) -> int:
        """Of the largest pass that a process has of its share of the batch."""
        share, shared = torch.arange(len(batch) // self.ranks), can_pack(loop.policy.model)
        return max(map(len, micro_batches(batch, share, limits=limits, shared=shared)))

    @contextmanager
    def _loop(self, recipe: Recipe) -> Iterator[tuple[PolicyLoop, SingleProcess]]:
        config = WorkerConfig(
            recipe=recipe_to_dict(recipe),
            policy=self.base,
            teacher=recipe.teacher,
            prompts=(),
            rewards=(),
            device="cpu",
            parallel="none" if self.ranks == 1 else "fsdp",
            on="local",
            calls=self.plan.calls,
        )
        engine = isinstance(recipe.sampler, Vllm | VllmServerSampler)  # which is not started
        recipe = replace(recipe, sampler=Transformers()) if engine else recipe
        with planned(self.card.kernels), fake_ranks(self.ranks) as parallel:
            policy = config.load(torch.device("cpu"))
            policy.divide(parallel)
            prompts: Any = None  # none is drawn
            yield PolicyLoop(recipe, policy, prompts, [], Path(os.devnull)), parallel

    def measure(self, size: int) -> MeasuredStep:
        """The two largest passes of every process; then the last token of the rows that are generated at once."""
        optimisation = replace(self.recipe.optimisation, micro_batch_tokens=size, micro_batch_rows=0)
        recipe = replace(self.recipe, optimisation=optimisation)
        sampling = recipe.sampling
        every = sampling.prompts_per_step * sampling.group_size
        with self._loop(recipe) as (loop, _):
            policy, critic = loop.policy, loop.critic
            batch = self._rollouts(policy)
            rows = self._rows(batch, loop, PassLimits(size))
            number = max(min(every, 2 * rows * self.ranks), rows * self.ranks)
            batch = batch.select(range(number))
            length = int(batch.train_mask[0].sum()) + sampling.max_new_tokens
            loaded = policy.networks
            loaded += [critic.model] if critic is not None else []  # type: ignore[attr-defined]
            optimisers = [loop.optimiser, *([critic.optimiser] if critic is not None else [])]  # type: ignore[attr-defined]
            cost = measured(loaded, optimisers, lambda: loop.learn(batch, 1, sampling, Stopwatch()))
            weights = sum(p.numel() * p.element_size() for p in policy.model.parameters())
            other_parts, decoding = self._sampling(loop, loaded, optimisers, weights)
        tokens = number // self.ranks * length
        return MeasuredStep(
            cost, tokens, -(-number // (self.ranks * rows)), every * length, weights, decoding, other_parts
        )

    def _rollouts(self, policy: Policy) -> RolloutBatch:
        """Those of a step, at least two a process. Of every other one the reward is 1."""
        sampling = self.recipe.sampling
        group, length = sampling.group_size, sampling.max_new_tokens
        items = self._items(policy, max(sampling.prompts_per_step, -(-2 * self.ranks // group)))
        mask = torch.ones(len(items) * group, length, dtype=torch.bool)
        batch = assemble(policy, items, group, (mask.long() * 7, mask, torch.zeros(mask.shape)), version=0)
        reward = torch.arange(len(mask), dtype=torch.float64) % 2
        return batch.with_(reward=reward, acc=reward, r_parts={"reward": reward})

    def _items(self, policy: Policy, number: int) -> list[PromptItem]:
        tokens = min(self.request.prompt_length, self.recipe.sampling.max_prompt_tokens - 32)
        text = text_of(policy.tokenizer, " the", tokens)
        return [PromptItem((Message("user", f"{text} {each}"),)) for each in range(number)]

    def _sampling(
        self, loop: PolicyLoop, loaded: list[torch.nn.Module], optimisers: list[Any], weights: int
    ) -> tuple[Sequence[OtherPart], float]:
        """Peak of generation, and the bytes that a step's generation reads: the weights once a token of all rows that
        are generated at once (of those that autocast casts, the casts), and half of the longest keys and values."""
        if not isinstance(loop.sampler, TransformersSampler):
            return (), 0.0
        policy, sampling = loop.policy, self.recipe.sampling
        rows = -(-sampling.prompts_per_step * sampling.group_size // self.ranks)
        fixed = held(loaded, optimisers)
        if isinstance(self.recipe.sampler, Vllm | VllmServerSampler):
            return self._engine(policy, fixed, rows)
        most = min(rows, sampling.rows_at_once)
        casts = cast_bytes(policy.model) if policy.autocast else 0
        if self.card.kernels == "cuda":  # as the sampler does
            columns = sampling.max_new_tokens + self.request.prompt_length + 32
            left = self.card.usable - fixed - casts
            most = min(most, rows_that_fit(policy.model.config, columns, left, autocast=policy.autocast))
        group = min(sampling.group_size, most)
        items = self._items(policy, max(1, most // group))
        ids, seen = pad_left(generation_ids(policy, items, images=False), int(policy.tokenizer.pad_token_id))
        uniforms = torch.zeros(len(items) * group, sampling.max_new_tokens)
        decoding = loop.sampler.decoding(ids, seen, group, uniforms)

        def generate() -> None:
            with policy.gathered_parameters():
                decoding.longest(on_cpu=self.card.kernels == "cpu")

        cost = measured(loaded, optimisers, generate)
        at_once = min(decoding.at_once, len(decoding.ids)) * decoding.group_size
        read = weights - casts + (cost.bytes - fixed - casts) / 2
        part = OtherPart("sampling", cost.bytes, fixed, "sampling.rows_at_once", at_once)
        return [part], -(-rows // at_once) * sampling.max_new_tokens * read

    def _engine(self, policy: Policy, fixed: int, rows: int) -> tuple[Sequence[OtherPart], float]:
        """What vLLM takes beside a training that holds `fixed`, awake, for `rows` at once or as many as there is room
        for, and what it reads: weights once a token, and half of the longest keys and values."""
        new = self.recipe.sampling.max_new_tokens
        tokens, dtype = new + self.request.prompt_length + 32, "bfloat16" if policy.autocast else "float32"
        memory = engine_memory(policy, tokens, dtype)
        most = (self.card.usable - fixed - memory.needed(0)) // memory.row
        at_once = max(1, min(rows, most))
        part = OtherPart(
            "sampling by vLLM", fixed + memory.needed(at_once), fixed + memory.needed(0), "rows at once", at_once
        )
        return [part], -(-rows // at_once) * new * (memory.weights + at_once * memory.row / 2)

    def changes(self) -> Iterable[list[tuple[str, "PlannedPolicy"]]]:
        recipe, words = self.recipe, ""

        def changed(text: str, other: Recipe, ranks: int = self.ranks) -> tuple[str, "PlannedPolicy"]:
            return f"{words} {text}".strip(), replace(self, plan=replace(self.plan, recipe=other), ranks=ranks)

        def optimised(**settings: Any) -> Recipe:
            return replace(recipe, optimisation=replace(recipe.optimisation, **settings))

        first = []
        if not recipe.optimisation.autocast and self.card.kernels == "cuda":
            words, recipe = "--set optimisation.autocast=true", optimised(autocast=True)
        if not recipe.optimisation.gradient_checkpointing:
            words = f"{words} --set optimisation.gradient_checkpointing=true".strip()
            recipe = optimised(gradient_checkpointing=True)
        if words:
            first = [(words, replace(self, plan=replace(self.plan, recipe=recipe)))]
        less = [changed(text, other) for text, other in less_memory(recipe, self.ranks).items()]
        offloaded = changed("--set optimisation.offload_activations=true", optimised(offload_activations=True))
        yield [*first, *(each for each in less if each[1].recipe.lora == recipe.lora), offloaded]
        yield [each for each in less if each[1].recipe.lora != recipe.lora]
        if self.ranks == 1 and recipe.optimisation.optimizer == "adamw" and recipe.lora.base_weights != "4bit":
            yield [changed("--parallel fsdp on 8 cards", recipe, ranks=8)]


def longest_prompt(plan: Plan, base: str, workspace: Workspace | None) -> int:
    """Tokens of the longest prompt that a run of this plan trains on. Raises BadInputError where it has none."""
    prompts = load_mixture(plan.prompts, seed=plan.recipe.seed, columns=plan.columns_by_field, workspace=workspace)
    media = workspace.media.root if workspace is not None else None
    renderer = policy_renderer(base, plan.recipe.sampling.max_prompt_tokens, plan.recipe.chat, media)
    return select_prompts(prompts, renderer, plan.recipe.sampling).longest


def plan_policy(plan: Plan, base: str, card: Card, request: PlanRequest, advance: Advance = silent) -> MemoryPlan:
    """`base`: what `plan.policy` loads. `advance`: as of `make_plan`. Raises BadInputError for a number format that the
    card lacks, and what several processes do not train."""
    optimisation, division = plan.recipe.optimisation, request.division(plan.parallel)
    check_memory(plan.recipe, division)
    if optimisation.autocast is None:
        optimisation = replace(optimisation, autocast=card.kernels == "cuda" and card.has_bfloat16)
        plan = replace(plan, recipe=replace(plan.recipe, optimisation=optimisation))
    check_format(card, "bfloat16" if optimisation.autocast else "float32")
    return make_plan(
        PlannedPolicy(plan, base, card, request, request.ranks), card, changes=request.changes, advance=advance
    )
