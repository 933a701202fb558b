"""S15: rows of other steps and other sources."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

REPLAYS: Kind[type[Any]] = Kind(
    "replay",
    "Adds rows of other steps or sources to a batch (recipe section `replay`).",
    members={
        "objectives": "assay_policy_training.plugins.replay.objectives:Objectives",
        "priority": "assay_policy_training.plugins.replay.priority:PriorityReplay",
        "recent": "assay_policy_training.plugins.replay.recent:Recent",
    },
    requires=("mix",),
)
