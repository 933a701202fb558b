"""S11: losses beside the policy's. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "kl": "assay_policy_training.auxiliary.kl:KlLoss",
}
