"""S1: what the policy sees of a prompt. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "drawn_direction": "assay_policy_training.contexts.direction:DrawnDirection",
}
