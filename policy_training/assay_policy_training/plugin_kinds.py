"""The kinds of plug-ins by which policy training is extended, for `assay plugins` and the registry."""

from typing import Any

from assay.registry import Kind
from assay.runs.trackers import TRACKERS
from assay_policy_training.decoding.kind import DECODERS
from assay_policy_training.measures.kind import MEASURES
from assay_policy_training.plugins.prompts import PROMPT_SOURCES
from assay_policy_training.recipe.shipped import RECIPES
from assay_policy_training.recipe.slots import SLOTS
from assay_policy_training.rollouts.reward_uri import REWARDS

KINDS: tuple[Kind[Any], ...] = (DECODERS, MEASURES, RECIPES, PROMPT_SOURCES, REWARDS, TRACKERS, *SLOTS.values())
