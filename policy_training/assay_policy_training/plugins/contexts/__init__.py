"""S1: what the policy sees of a prompt. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "ghpo": "assay_policy_training.plugins.contexts.ghpo:Ghpo",
    "guide": "assay_policy_training.plugins.contexts.guide:Guide",
    "seele": "assay_policy_training.plugins.contexts.seele:Seele",
    "revise": "assay_policy_training.plugins.contexts.revise:Revise",
    "drawn_direction": "assay_policy_training.plugins.contexts.direction:DrawnDirection",
}
