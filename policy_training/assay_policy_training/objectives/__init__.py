"""S9: the loss of a policy. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "ppo_clip": "assay_policy_training.objectives.ratio_clip:PpoClip",
    "reinforce": "assay_policy_training.objectives.ratio_clip:Reinforce",
}
