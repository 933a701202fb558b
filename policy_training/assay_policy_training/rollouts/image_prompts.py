"""Prompts with images: what in a run does not take them is refused before anything is loaded.

Covers: parts of a recipe, and several processes, that do not give images to the model. Leaves out: models that read
text alone, which refuse the prompts themselves (`assay.models.chat.renderer`), rewards.
"""

from collections.abc import Iterable

from assay.errors import BadInputError
from assay.models.chat.image_reader import references_of
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.recipe.schema import Recipe


def check_image_prompts(recipe: Recipe, items: Iterable[PromptItem], *, processes: int) -> None:
    """Raises BadInputError where prompts have images, and something here does not take them."""
    if not any(references_of(item.generation_context) for item in items):
        return
    refused = {
        "sampler": not getattr(recipe.sampler, "reads_images", False),
        "environment": recipe.environment is not None,
        "contexts": recipe.contexts is not None,
        "critic": recipe.critic is not None,
        "teacher": recipe.teacher is not None,
        recipe.asynchrony.key: bool(recipe.asynchrony.ahead or recipe.asynchrony.actors),
        "--parallel": processes > 1,
    }
    for field, on in refused.items():
        if on:
            raise BadInputError("not with prompts that have images", field=field)
