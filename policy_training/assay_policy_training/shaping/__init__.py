"""S3: rewards shaped by length, group or KL, after the filter. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "kl": "assay_policy_training.shaping.kl_in_reward:KlInReward",
    "overlong": "assay_policy_training.shaping.length:Overlong",
    "kimi_length": "assay_policy_training.shaping.length:KimiLength",
    "self_rewarded_efficiency": "assay_policy_training.shaping.length:ConciseCorrect",
    "dler": "assay_policy_training.shaping.length:TruncatedReward",
    "cosine": "assay_policy_training.shaping.cosine:CosineLength",
    "repetition": "assay_policy_training.shaping.repetition:RepetitionPenalty",
    "laser": "assay_policy_training.shaping.laser:Laser",
    "laser_d": "assay_policy_training.shaping.laser:LaserD",
    "laser_de": "assay_policy_training.shaping.laser:LaserDe",
    "clip_and_delta": "assay_policy_training.shaping.process:ClipAndDelta",
    "par": "assay_policy_training.shaping.par:Par",
    "rlcr": "assay_policy_training.shaping.rlcr:CalibrationReward",
    "rubric": "assay_policy_training.shaping.rubric:Rubric",
    "trust_grpo": "assay_policy_training.shaping.trust:TrustedThinking",
}
