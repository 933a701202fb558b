"""S9: the loss of a policy."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

OBJECTIVES: Kind[type[Any]] = Kind(
    "objective",
    "The loss of a policy (recipe section `objective`).",
    members={
        "ppo_clip": "assay_policy_training.plugins.objectives.ratio_clip:PpoClip",
        "reinforce": "assay_policy_training.plugins.objectives.ratio_clip:Reinforce",
        "guide": "assay_policy_training.plugins.objectives.guide:GuideLoss",
        "pacs": "assay_policy_training.plugins.objectives.pacs:Pacs",
        "drpo": "assay_policy_training.plugins.objectives.drpo:Drpo",
        "inpo": "assay_policy_training.plugins.objectives.inpo:Inpo",
        "srpo": "assay_policy_training.plugins.objectives.srpo:Srpo",
        "a_lol": "assay_policy_training.plugins.objectives.a_lol:Alol",
        "rover": "assay_policy_training.plugins.objectives.rover:Rover",
        "direct_advantage": "assay_policy_training.plugins.objectives.direct_advantage:DirectAdvantage",
        "aipo": "assay_policy_training.plugins.objectives.truncated_ratio:Aipo",
        "cispo": "assay_policy_training.plugins.objectives.truncated_ratio:Cispo",
        "dppo": "assay_policy_training.plugins.objectives.divergence_mask:Dppo",
        "dro": "assay_policy_training.plugins.objectives.quadratic:Dro",
        "gmpo": "assay_policy_training.plugins.objectives.sequence_ratio:Gmpo",
        "gpg": "assay_policy_training.plugins.objectives.ratio_clip:Gpg",
        "gspo": "assay_policy_training.plugins.objectives.sequence_ratio:Gspo",
        "hapo": "assay_policy_training.plugins.objectives.hapo:Hapo",
        "kl_cov": "assay_policy_training.plugins.objectives.kl_cov:KlCov",
        "sapo": "assay_policy_training.plugins.objectives.soft_gate:Sapo",
        "stable_reinforce": "assay_policy_training.plugins.objectives.stable_reinforce:StableReinforce",
    },
    requires=("scope", "needs"),
)
