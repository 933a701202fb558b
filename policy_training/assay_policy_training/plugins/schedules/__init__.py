"""S13: settings that change with the steps. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "cosine": "assay_policy_training.plugins.schedules.decay:Cosine",
    "linear": "assay_policy_training.plugins.schedules.decay:Linear",
    "length_lr": "assay_policy_training.plugins.schedules.length_lr:LengthLr",
    "stages": "assay_policy_training.plugins.schedules.stages:Stages",
}
