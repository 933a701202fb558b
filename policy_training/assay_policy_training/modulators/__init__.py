"""S7: advantages, changed. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "whitening": "assay_policy_training.modulators.whitening:Whitening",
    "clip": "assay_policy_training.modulators.clip:ClipAdvantage",
    "three_sigma": "assay_policy_training.modulators.three_sigma:ThreeSigma",
    "mrt": "assay_policy_training.modulators.progress:BlockProgress",
}
