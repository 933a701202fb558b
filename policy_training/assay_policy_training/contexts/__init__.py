"""S1: what the policy sees of a prompt. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "ghpo": "assay_policy_training.contexts.ghpo:Ghpo",
    "guide": "assay_policy_training.contexts.guide:Guide",
    "seele": "assay_policy_training.contexts.seele:Seele",
    "revise": "assay_policy_training.contexts.revise:Revise",
    "drawn_direction": "assay_policy_training.contexts.direction:DrawnDirection",
}
