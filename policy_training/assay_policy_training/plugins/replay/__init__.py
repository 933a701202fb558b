"""S15: rows of other steps and other sources. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "objectives": "assay_policy_training.plugins.replay.objectives:Objectives",
    "priority": "assay_policy_training.plugins.replay.priority:Priority",
    "recent": "assay_policy_training.plugins.replay.recent:Recent",
}
