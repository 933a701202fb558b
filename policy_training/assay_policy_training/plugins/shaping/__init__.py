"""S3: rewards shaped by length, group or KL, after the filters."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

REWARD_SHAPERS: Kind[type[Any]] = Kind(
    "reward_shaper",
    "Changes rewards by length, group or KL (recipe section `shaping`).",
    members={
        "kl": "assay_policy_training.plugins.shaping.kl_in_reward:KlInReward",
        "overlong": "assay_policy_training.plugins.shaping.length:Overlong",
        "kimi_length": "assay_policy_training.plugins.shaping.length:KimiLength",
        "self_rewarded_efficiency": "assay_policy_training.plugins.shaping.length:ConciseCorrect",
        "dler": "assay_policy_training.plugins.shaping.length:TruncatedReward",
        "cosine": "assay_policy_training.plugins.shaping.cosine:CosineLength",
        "repetition": "assay_policy_training.plugins.shaping.repetition:RepetitionPenalty",
        "laser": "assay_policy_training.plugins.shaping.laser:Laser",
        "laser_d": "assay_policy_training.plugins.shaping.laser:LaserD",
        "laser_de": "assay_policy_training.plugins.shaping.laser:LaserDe",
        "clip_and_delta": "assay_policy_training.plugins.shaping.process:ClipAndDelta",
        "par": "assay_policy_training.plugins.shaping.par:ParReward",
        "rlcr": "assay_policy_training.plugins.shaping.rlcr:CalibrationReward",
        "rubric": "assay_policy_training.plugins.shaping.rubric:Rubric",
        "trust_grpo": "assay_policy_training.plugins.shaping.trust:TrustedThinking",
    },
    requires=("needs", "shape"),
)
