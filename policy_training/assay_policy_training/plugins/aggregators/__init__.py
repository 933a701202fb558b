"""S10: from token losses to one number. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "mean": "assay_policy_training.core.aggregation:Aggregation",
}
