"""S6: from rewards to advantages."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

ESTIMATORS: Kind[type[Any]] = Kind(
    "estimator",
    "Turns rewards into advantages (recipe section `estimator`).",
    members={
        "grpo": "assay_policy_training.plugins.estimators.group_relative:Grpo",
        "dr_grpo": "assay_policy_training.plugins.estimators.group_relative:DrGrpo",
        "rloo": "assay_policy_training.plugins.estimators.group_relative:Rloo",
        "gae": "assay_policy_training.plugins.estimators.gae:Gae",
        "returns_to_go": "assay_policy_training.plugins.estimators.gae:ReturnsToGo",
        "token_level": "assay_policy_training.plugins.estimators.token_level:TokenLevel",
        "constant": "assay_policy_training.plugins.estimators.constant:Constant",
        "step_values": "assay_policy_training.plugins.estimators.step_values:StepValues",
        "optimal_token_baseline": "assay_policy_training.plugins.estimators."
        "optimal_token_baseline:OptimalTokenBaseline",
        "ngrpo": "assay_policy_training.plugins.estimators.ngrpo:Ngrpo",
        "canon": "assay_policy_training.plugins.estimators.canon:Canon",
        "signed": "assay_policy_training.plugins.estimators.signed:Signed",
        "opo": "assay_policy_training.plugins.estimators.opo:Opo",
        "pass_at_k": "assay_policy_training.plugins.estimators.pass_at_k:PassAtK",
        "gdpo": "assay_policy_training.plugins.estimators.gdpo:Gdpo",
        "lite_ppo": "assay_policy_training.plugins.estimators.lite_ppo:LitePpo",
        "constrained": "assay_policy_training.plugins.estimators.constrained:ConstrainedMixture",
    },
    requires=("needs", "__call__"),
)
