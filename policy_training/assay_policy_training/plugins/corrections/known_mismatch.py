"""Recipes whose sampler (mu) is known not to sample from the trainer's distribution (old).

Covers: the reasons that are known before a run starts, whether anything corrects for them, what is refused and what is
only warned of. Rounding and wrong weights show in the metrics of each step (`mismatch`).

Refused: an objective without any ratio on rows of older weights, since its gradient cannot account for their age. All
else gives one warning, and `mismatch_*` in every step: a ratio theta / old does not contain mu, but the difference
is bounded (`top_p`, a temperature's spread) or is commonly trained on as it is (PPO's ratio on rows one step old).
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.errors import BadInputError
from assay_policy_training.plugins.protocols import RecipeView


def known_mismatches(recipe: RecipeView) -> dict[str, str]:
    """Key of the recipe -> why mu is not old. Read: a sampler's `generates` (default: yes) and `draws_otherwise`."""
    if not getattr(recipe.sampler, "generates", True):
        return {}
    reasons = {}
    if recipe.sampling.top_p < 1:
        reasons["sampling.top_p"] = "below 1 the sampler never draws tokens that the trainer's log-probs count in"
    if otherwise := getattr(recipe.sampler, "draws_otherwise", ""):
        reasons["sampler.kind"] = otherwise
    if recipe.asynchrony.lag:
        reasons["asynchrony.lag"] = "above 0 rows are drawn by older weights"
    return reasons


def reweights(objective: object, corrections: Sequence[object]) -> bool:
    """Whether mu's probabilities are divided by: by a correction that weighs, or by the objective itself."""
    return getattr(objective, "corrects_behaviour", False) or any(getattr(c, "weighs", True) for c in corrections)


def check_mismatch(recipe: RecipeView) -> None:
    """Raises BadInputError for rows of older weights under an objective that has no ratio and is given none."""
    ratio = getattr(recipe.objective, "has_ratio", True) or reweights(recipe.objective, recipe.corrections)
    if recipe.asynchrony.lag and not ratio:
        raise BadInputError(
            f"{type(recipe.objective).__name__} has no ratio, so nothing would know that rows are of older weights; "
            "give a correction that weighs (corrections: [{kind: token_tis}]), or take ppo_clip",
            field="asynchrony.lag",
        )


def mismatch_warnings(recipe: RecipeView) -> list[str]:
    """Warnings for the start of a run: known mismatches that no correction and no objective accounts for."""
    if reweights(recipe.objective, recipe.corrections) or recipe.corrections:  # a rejection bounds it
        return []
    return [
        f"{key}: {why}, and nothing corrects for it (corrections: [{{kind: token_tis}}] would); see mismatch_*"
        for key, why in known_mismatches(recipe).items()
    ]


def check_single_correction(objective: object, corrections: Sequence[object]) -> None:
    """Raises BadInputError for a mismatch that is corrected twice: by two sets of weights, or by weights under an
    objective that divides by mu itself (AIPO, PPO in bypass mode). Read: an objective's `corrects_behaviour`, a
    correction's `weighs` (a correction that does not say is taken to weigh)."""
    weighing = [type(plugin).__name__ for plugin in corrections if getattr(plugin, "weighs", True)]
    if weighing and getattr(objective, "corrects_behaviour", False):
        raise BadInputError(
            f"{type(objective).__name__} already divides by the sampler's probabilities; with {weighing[0]} the "
            "mismatch would be corrected twice",
            field="corrections",
        )
    if len(weighing) > 1:
        raise BadInputError(
            f"{' and '.join(weighing)} would correct the mismatch more than once; keep one", field="corrections"
        )
