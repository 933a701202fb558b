"""S8: how much each token counts, and which count at all. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "clip_cov": "assay_policy_training.plugins.token_weights.covariance:ClipCov",
    "high_entropy": "assay_policy_training.plugins.token_weights.high_entropy:HighEntropy",
    "steer": "assay_policy_training.plugins.token_weights.steer:Steer",
    "not_truncated": "assay_policy_training.plugins.token_weights.not_truncated:NotTruncated",
}
