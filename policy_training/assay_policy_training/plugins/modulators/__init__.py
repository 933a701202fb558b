"""S7: advantages, changed. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "whitening": "assay_policy_training.plugins.modulators.whitening:Whitening",
    "clip": "assay_policy_training.plugins.modulators.clip:ClipAdvantage",
    "three_sigma": "assay_policy_training.plugins.modulators.three_sigma:ThreeSigma",
    "mrt": "assay_policy_training.plugins.modulators.progress:BlockProgress",
    "empg": "assay_policy_training.plugins.modulators.empg:Empg",
    "effective_rank": "assay_policy_training.plugins.modulators.effective_rank:EffectiveRank",
    "exploration": "assay_policy_training.plugins.modulators.exploration:Exploration",
    "future_kl": "assay_policy_training.plugins.modulators.future_kl:FutureKl",
    "dr_irl": "assay_policy_training.plugins.modulators.reward_scaling:RewardScaling",
}
