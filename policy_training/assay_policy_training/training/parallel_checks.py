"""Which recipes can be trained here, and by several processes together: a run that would be wrong is refused before it
begins, or before its first step.

Covers: libraries, engines and models that a recipe names; plug-ins that need a single process, or whole weights. Leaves
out: how work is divided (`assay.models.parallelism.strategy`), generating ahead, which needs actors then
(`rollouts.collector`).
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from assay.compute.executor import LOCAL
from assay.errors import BadInputError
from assay.models.loading import resolve_model
from assay.models.memory_options import check_base_weights, check_optimiser
from assay.models.parallelism.distributed import world_size
from assay.models.parallelism.strategy import SingleProcess
from assay_policy_training.plugins.protocols import ActorEngines, CarriesRows, Sampler
from assay_policy_training.recipe.schema import Recipe


@runtime_checkable
class ChecksSampler(Protocol):
    """A sampler plan that knows before any weight is loaded that it cannot sample here."""

    def check(self) -> None:
        """Raises AssayError for what is not installed or does not answer, and for settings."""
        ...


def check_parts(recipe: Recipe, division: str, on: str = LOCAL) -> None:
    """Raises what can be known without loading a weight. `division`: of `resolve`; `on`: where rollout actors are."""
    elsewhere = on != LOCAL and recipe.asynchrony.actors and isinstance(recipe.sampler, ActorEngines)
    if isinstance(recipe.sampler, ChecksSampler) and not elsewhere:  # else engines are on the actors' machines
        recipe.sampler.check()
    recipe.asynchrony.check_process(on, world_size())
    check_memory(recipe, division)
    if recipe.needs_teacher and recipe.teacher is None:
        raise BadInputError("name a teacher model with the same vocabulary", field="teacher")
    for model in (recipe.teacher, getattr(recipe.critic, "base", None)):
        if model is not None:
            resolve_model(model)


def check_memory(recipe: Recipe, division: str) -> None:
    """Raises BadInputError where the optimiser or the frozen weights of the policy or its critic cannot be divided so,
    or need a library that is missing."""
    optimisers = {"optimisation": recipe.optimisation, "critic": recipe.critic}
    for part, settings in optimisers.items():
        if (optimizer := getattr(settings, "optimizer", None)) is not None:
            check_optimiser(optimizer, division, f"{part}.optimizer")
    for field, lora in {"lora": recipe.lora, "critic.lora": getattr(recipe.critic, "lora", None)}.items():
        if lora is not None:
            check_base_weights(lora.base_weights, True, division, f"{field}.base_weights")


def check_parallel(parallel: SingleProcess, sampler: Sampler, plugins: Mapping[str, Any]) -> None:
    """Raises BadInputError where a part of the training does not work in several processes."""
    if parallel.world == 1:
        return
    if isinstance(sampler, CarriesRows):  # one that learns from the step's report learns the same everywhere
        raise BadInputError(
            f"carrying rows over to later steps does not work in {parallel.world} processes", field="sampler"
        )
    if parallel.equal_passes:
        for name, plugin in plugins.items():
            if getattr(plugin, "takes_gradients", False):
                raise BadInputError("computes gradients of whole weights; choose --parallel ddp", field=name)
