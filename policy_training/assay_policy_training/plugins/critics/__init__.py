"""S12: value functions. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "value_model": "assay_policy_training.plugins.critics.value_model:ValueModel",
}
