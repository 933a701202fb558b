"""S4: which rows are trained on, and whether more are drawn. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "enough_valid": "assay_policy_training.filters.enough_valid:EnoughValid",
    "best_of_group": "assay_policy_training.filters.best_of_group:BestOfGroup",
}
