"""S1: what the policy sees of a prompt."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

CONTEXT_POLICIES: Kind[type[Any]] = Kind(
    "context_policy",
    "What the policy sees of a prompt, such as hints (recipe section `contexts`).",
    members={
        "ghpo": "assay_policy_training.plugins.contexts.ghpo:Ghpo",
        "guide": "assay_policy_training.plugins.contexts.guide:Guide",
        "seele": "assay_policy_training.plugins.contexts.seele:Seele",
        "revise": "assay_policy_training.plugins.contexts.revise:Revise",
        "drawn_direction": "assay_policy_training.plugins.contexts.direction:DrawnDirection",
    },
    requires=("first", "again"),
)
