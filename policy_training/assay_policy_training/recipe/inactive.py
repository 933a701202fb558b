"""Parts of a recipe that change nothing in the set-up at hand: named when a run starts.

Covers: bounds on a ratio that is always 1, corrections of a mismatch that there is none of, a clip of values that are
fitted once. Bounds that a shipped recipe has of itself are its header's to explain. Leaves out: mismatches that nothing
corrects (`corrections.known_mismatch`), combinations that are refused (`ChecksRecipe`).
"""

from dataclasses import fields

from assay.models.devices import pick_device
from assay_policy_training.plugins.corrections.mismatch import known_mismatches
from assay_policy_training.plugins.samplers.auto import Auto
from assay_policy_training.plugins.samplers.transformers import Transformers
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.recipe.shipped import shipped_recipes

#: Settings of objectives that bound theta / old (or theta / mu).
BOUNDS = ("clip_low", "clip_high", "dual_clip", "eps_low", "eps_high", "cap", "cap_abs")


def inactive_parts(recipe: Recipe) -> dict[str, str]:
    """Key of the recipe -> why that part cannot act."""
    reasons: dict[str, str] = {}
    exact = samples_exactly(recipe)
    objective, updates = recipe.objective, recipe.optimisation.updates_per_batch
    by_mu = getattr(objective, "corrects_behaviour", False)
    bounds = [f.name for f in fields(objective) if f.name in BOUNDS and getattr(objective, f.name) is not None]  # type: ignore[arg-type]
    idle = updates == 1 and recipe.replay is None and (exact or not by_mu)
    if bounds and idle and not _as_shipped(recipe):
        reasons[f"objective.{', '.join(bounds)}"] = (
            f"with one update a batch the ratio theta / {'mu' if by_mu else 'old'} is 1, and no bound on it acts "
            "(optimisation.minibatches above 1)"
        )
    for number, correction in enumerate(recipe.corrections):
        if exact and "logp_mu" in getattr(correction, "needs", ()):
            reasons[f"corrections.{number} ({type(correction).__name__})"] = (
                "this sampler draws from the trainer's own distribution, old / mu is 1 up to rounding; it acts with "
                "an engine of its own (sampler.kind), asynchrony.lag, sampling.top_p below 1 or optimisation.autocast"
            )
    critic = recipe.critic
    fits = getattr(critic, "epochs", 1) * getattr(critic, "minibatches", 1)
    if getattr(critic, "clip", None) is not None and fits == 1:
        reasons["critic.clip"] = "with one update a batch the values are those it is clipped to (critic.minibatches)"
    return reasons


def _as_shipped(recipe: Recipe) -> bool:
    """Whether objective and updates a batch are those of the shipped recipe of its name, or of `grpo`, which recipes of
    one's own start from: nobody chose a bound."""
    names = {"grpo", recipe.name} if recipe.name in shipped_recipes() else {"grpo"}
    chosen = (recipe.objective, recipe.optimisation.updates_per_batch)
    return any(
        chosen == (shipped.objective, shipped.optimisation.updates_per_batch) for shipped in map(load_recipe, names)
    )


def samples_exactly(recipe: Recipe) -> bool:
    """Whether mu is known to be old up to rounding in float32: the trainer's own weights, model code and precision."""
    device = pick_device()
    by_itself = isinstance(recipe.sampler, Transformers) or (isinstance(recipe.sampler, Auto) and device.type != "cuda")
    return by_itself and not recipe.optimisation.autocasts(device) and not known_mismatches(recipe)
