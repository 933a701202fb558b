"""S3: rewards shaped by length, group or KL, after the filter. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "kl": "assay_policy_training.shaping.kl_in_reward:KlInReward",
}
