"""A policy's optimiser, and the settings by which weights and optimiser take less of a GPU's memory.

Leaves out: the optimisers themselves (`assay.models.optimisers`), a critic's (`plugins.critics`), activations.
"""

from dataclasses import replace

import torch

from assay.models.memory_options import OptimizerName, has_bitsandbytes
from assay.models.optimisers import make_optimiser
from assay_policy_training.core.config import Optimisation
from assay_policy_training.core.policy import Policy
from assay_policy_training.recipe.schema import Recipe


def policy_optimiser(policy: Policy, settings: Optimisation) -> torch.optim.Optimizer:
    return make_optimiser(
        settings.optimizer,
        [{"params": list(policy.trainable().values()), "weight_decay": settings.weight_decay}],
        lr=settings.lr,
        betas=(settings.betas[0], settings.betas[1]),
        model=policy.model if policy.autocast and policy.lora is None else None,
    )


def less_memory(recipe: Recipe, ranks: int = 1) -> dict[str, Recipe]:
    """Recipes that differ in one setting or two, by these in words, least change first."""
    lora = recipe.lora
    adapters = lora if lora.rank else replace(lora, rank=16)
    words, options = "" if lora.rank else "--set lora.rank=16", {}
    names: tuple[OptimizerName, ...] = ("adamw_8bit", "adamw_offloaded") if has_bitsandbytes() else ("adamw_offloaded",)
    if not lora.rank and recipe.optimisation.optimizer == "adamw":
        for name in names:
            optimisation = replace(recipe.optimisation, optimizer=name)
            options[f"--set optimisation.optimizer={name}"] = replace(recipe, optimisation=optimisation)
    if not lora.rank:
        options[words] = replace(recipe, lora=adapters)
    if ranks == 1 and has_bitsandbytes() and adapters.base_weights != "4bit":
        options[f"{words} --set lora.base_weights=4bit".strip()] = replace(
            recipe, lora=replace(adapters, base_weights="4bit")
        )
    return options
