"""What a recipe itself says of a sampler (mu) that does not draw from the trainer's distribution (old).

Covers: why the two are known to differ before a row is drawn, whether anything accounts for it, what is refused and
what is only told. Rounding, and other weights than the trainer believes, are for the numbers of each step (`mismatch`).

Refused: an objective without any ratio on rows of older weights, since nothing at all in its gradient knows of their
age. Told, once, with `mismatch_*` in every step: all else. A ratio theta / old does not know of mu, but the difference
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
    """What is to be told when a run starts: known mismatches that no correction and no objective accounts for."""
    if reweights(recipe.objective, recipe.corrections) or recipe.corrections:  # a rejection bounds it
        return []
    return [
        f"{key}: {why}, and nothing corrects for it (corrections: [{{kind: token_tis}}] would); see mismatch_*"
        for key, why in known_mismatches(recipe).items()
    ]
