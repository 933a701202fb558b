"""S0: where the prompts of a policy run come from, and in which order."""

from collections.abc import Callable
from typing import Any

from assay.registry import Kind

#: Callables (argument, *, seed, split) -> prompts. `--prompts NAME:ARGUMENT` passes what follows the colon.
PROMPT_SOURCES: Kind[Callable[..., Any]] = Kind(
    "prompt_source",
    "Gives the prompts of a policy run, where they are not a JSON Lines file (`assay rl --prompts`).",
    members={
        "constrained": "assay_policy_training.plugins.prompts.constrained:constrained_prompts",
        "gymnasium": "assay_policy_training.plugins.environments.adapters.gymnasium:tasks",
        "verifiers": "assay_policy_training.plugins.environments.adapters.verifiers:tasks",
        "arithmetic": "assay_policy_training.plugins.environments.shipped.arithmetic:tasks",
        "twenty_questions": "assay_policy_training.plugins.environments.shipped.twenty_questions:tasks",
        "form_filling": "assay_policy_training.plugins.environments.shipped.form_filling:tasks",
        "number_tree": "assay_policy_training.plugins.environments.shipped.number_tree:tasks",
        "text_shop": "assay_policy_training.plugins.environments.shipped.text_shop:tasks",
        "two_agent_grid": "assay_policy_training.plugins.environments.shipped.two_agent_grid:tasks",
    },
    requires=("__call__",),
    option="--prompts",
)
