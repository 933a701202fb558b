"""What generates rollouts ahead of training: a policy of its own with a sampler, in a process of its own or a thread.

Covers: weights that are loaded when they are newer, and checked; whole groups, or rows that continue by a window.
Leaves out: who is asked for what (`buffer`), and how (`pool`).
"""

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any

import torch

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import (
    ActorEngines,
    Observer,
    PublishesWeights,
    Sampler,
    SamplerPlan,
    Stateful,
)
from assay_policy_training.plugins.samplers.carried import CarriedRow, continued, rows_batch
from assay_policy_training.plugins.samplers.transformers import Transformers, TransformersSampler
from assay_policy_training.recipe.loading import recipe_from_dict
from assay_policy_training.rollouts.generate import RolloutRequest
from assay_policy_training.rollouts.relay import check_loaded, load_weights, weights_of

TARGET = f"{__name__}:rollout_process"
#: Of a unit after a window: its rows, how many are under way, and the batch once there are none.
Progress = tuple[list[CarriedRow], int, RolloutBatch | None]


class RolloutActor:
    """Methods are called one at a time. `handle`, `key`, `version`, `probe`: see `relay.Publication`."""

    def __init__(self, policy: Policy, sampler: Sampler) -> None:
        self.policy, self.sampler = policy, sampler
        self._loaded = ""

    def generate(
        self, handle: Any, key: str, version: int, probe: list[float], request: RolloutRequest
    ) -> RolloutBatch:
        """The request's rows, under its uids."""
        self._load(handle, key, version, probe)
        self.sampler.sampling = request.sampling
        size = request.sampling.group_size
        batch = self.sampler.rollout(request.items, size, seed=request.seeds, version=version)
        return batch.with_(uid=tuple(uid for uid in request.uids for _ in range(size)))

    def extend(
        self,
        handle: Any,
        key: str,
        version: int,
        probe: list[float],
        units: Sequence[tuple[Sequence[CarriedRow], Sampling]],
        window: int,
    ) -> list[Progress]:
        """Rows of several units, those under way longer by a window."""
        self._load(handle, key, version, probe)
        assert isinstance(self.sampler, TransformersSampler)
        answers: dict[int, Progress] = {}
        for sampling in dict.fromkeys(sampling for _, sampling in units):  # steps may differ in it
            self.sampler.sampling = sampling
            policy, limit = self.policy, sampling.max_new_tokens
            same = {number: rows for number, (rows, settings) in enumerate(units) if settings == sampling}
            under_way = [row for rows in same.values() for row in rows if not row.ended(policy, limit)]
            longer = iter(continued(self.sampler, under_way, window, version=version))
            for number, rows in same.items():
                after = [row if row.ended(policy, limit) else next(longer) for row in rows]
                open_rows = sum(not row.ended(policy, limit) for row in after)
                batch = None if open_rows else rows_batch(policy, after, [0] * len(after), limit=limit)
                answers[number] = after, open_rows, None if batch is None else batch.with_(unfinished=None)
        return [answers[number] for number in range(len(units))]

    def _load(self, handle: Any, key: str, version: int, probe: list[float]) -> None:
        if self._loaded == key:
            return
        self._loaded = ""
        load_weights(self.policy, weights_of(handle))
        if probe:
            check_loaded(self.policy, probe, version)
        if isinstance(self.sampler, PublishesWeights):
            self.sampler.publish(self.policy, version)
        self._loaded = key


def rollout_process(recipe: Mapping[str, Any], policy: str, device: str) -> RolloutActor:
    """An actor with the policy of that name; its trained weights come with the first publication."""
    chosen, on = recipe_from_dict(recipe), torch.device(device)
    if on.type == "cpu":
        torch.set_num_threads(1)  # actors share the cores; and products do not depend on how many there are
    loaded = Policy(
        policy,
        device=on,
        max_prompt_tokens=chosen.sampling.max_prompt_tokens,
        autocast=chosen.optimisation.autocasts(on),
        lora=chosen.lora,
        chat=chosen.chat,
    )
    loaded.model.requires_grad_(False)
    return RolloutActor(loaded, chosen.opened_sampler(loaded))


def opened_by_trainer(plan: SamplerPlan, asynchrony: Asynchrony) -> SamplerPlan:
    """The sampler of the trainer's process, which has no engine where each actor has one. Raises AssayError where those
    are not as they should be."""
    if not (asynchrony.actors and isinstance(plan, ActorEngines)):
        return plan
    if asynchrony.window:
        raise _window_refused()
    plan.check_actors(asynchrony.actors)
    return Transformers()


def check_sampler(sampler: Sampler, asynchrony: Asynchrony) -> None:
    """Raises BadInputError for a sampler that cannot generate ahead of training."""
    if isinstance(sampler, Stateful | Observer):
        raise BadInputError("a sampler with memory cannot generate ahead of training", field=asynchrony.key)
    if asynchrony.actors and isinstance(sampler, PublishesWeights):
        raise BadInputError(
            "this engine is the trainer's: leave actors out, or give each a server (sampler.kind=vllm_server)",
            field="asynchrony.actors",
        )
    if asynchrony.window and not isinstance(sampler, TransformersSampler):
        raise _window_refused()


def _window_refused() -> BadInputError:
    return BadInputError("only the transformers sampler continues rows under way", field="asynchrony.window")


def frozen_copy(policy: Policy) -> Policy:
    """The policy with its own copy of all trained weights; the others are shared. It has no reference.

    Its tokenizer is a copy too: two threads may not use one.
    """
    frozen = copy(policy)
    frozen.tokenizer = deepcopy(policy.tokenizer)
    renderer = policy.renderer
    frozen.renderer = Renderer(
        frozen.tokenizer, max_length=renderer.max_length, chat=renderer.chat, images=renderer.images
    )
    shared: dict[int, Any] = {id(p): p for p in policy.model.parameters() if not p.requires_grad}
    frozen.model = deepcopy(policy.model, shared).requires_grad_(False)
    frozen.has_reference, frozen._reference = False, None
    return frozen
