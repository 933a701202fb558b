"""S13: settings that change from step to step."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

SCHEDULES: Kind[type[Any]] = Kind(
    "schedule",
    "Changes a setting from step to step (recipe section `schedules`).",
    members={
        "cosine": "assay_policy_training.plugins.schedules.decay:Cosine",
        "linear": "assay_policy_training.plugins.schedules.decay:Linear",
        "length_lr": "assay_policy_training.plugins.schedules.length_lr:LengthLr",
        "stages": "assay_policy_training.plugins.schedules.stages:StagedSchedule",
    },
    requires=("value",),
)
