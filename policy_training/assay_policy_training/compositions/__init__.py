"""S3: from named reward parts to one reward. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "weighted": "assay_policy_training.compositions.weighted:Composition",
}
