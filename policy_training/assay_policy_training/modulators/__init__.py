"""S7: advantages, changed. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "whitening": "assay_policy_training.modulators.whitening:Whitening",
    "clip": "assay_policy_training.modulators.clip:ClipAdvantage",
    "three_sigma": "assay_policy_training.modulators.three_sigma:ThreeSigma",
    "mrt": "assay_policy_training.modulators.progress:BlockProgress",
    "empg": "assay_policy_training.modulators.empg:Empg",
    "effective_rank": "assay_policy_training.modulators.effective_rank:EffectiveRank",
    "exploration": "assay_policy_training.modulators.exploration:Exploration",
    "future_kl": "assay_policy_training.modulators.future_kl:FutureKl",
    "dr_irl": "assay_policy_training.modulators.reward_scaling:RewardScaling",
}
