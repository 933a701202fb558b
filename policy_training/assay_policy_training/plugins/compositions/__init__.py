"""S3: from named reward parts to one reward."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

REWARD_COMPOSITIONS: Kind[type[Any]] = Kind(
    "reward_composition",
    "Combines named reward parts to one reward (recipe section `reward`).",
    members={
        "weighted": "assay_policy_training.plugins.compositions.weighted:Composition",
        "gated": "assay_policy_training.plugins.compositions.gated:GatedAccumulation",
        "stable_reinforce": "assay_policy_training.plugins.compositions.gated:ConsistencyReward",
        "soft_penalties": "assay_policy_training.plugins.compositions.gated:SoftPenalties",
        "constrained": "assay_policy_training.plugins.compositions.constrained:Constrained",
        "hypervolume": "assay_policy_training.plugins.compositions.hypervolume:HypervolumeWeighting",
        "gradient_weights": "assay_policy_training.plugins.compositions.gradient_weights:GradientWeighting",
        "maxmin": "assay_policy_training.plugins.compositions.maxmin:MaxMin",
        "dpa": "assay_policy_training.plugins.compositions.directional:Directional",
    },
    requires=("__call__",),
)
