"""S9: the loss of a policy. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "ppo_clip": "assay_policy_training.objectives.ratio_clip:PpoClip",
    "reinforce": "assay_policy_training.objectives.ratio_clip:Reinforce",
    "aipo": "assay_policy_training.objectives.truncated_ratio:Aipo",
    "cispo": "assay_policy_training.objectives.truncated_ratio:Cispo",
    "dppo": "assay_policy_training.objectives.divergence_mask:Dppo",
    "dro": "assay_policy_training.objectives.quadratic:Dro",
    "gmpo": "assay_policy_training.objectives.sequence_ratio:Gmpo",
    "gpg": "assay_policy_training.objectives.ratio_clip:Gpg",
    "gspo": "assay_policy_training.objectives.sequence_ratio:Gspo",
    "hapo": "assay_policy_training.objectives.hapo:Hapo",
    "kl_cov": "assay_policy_training.objectives.kl_cov:KlCov",
    "sapo": "assay_policy_training.objectives.soft_gate:Sapo",
    "stable_reinforce": "assay_policy_training.objectives.stable_reinforce:StableReinforce",
}
