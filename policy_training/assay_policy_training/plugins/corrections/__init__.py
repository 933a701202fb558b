"""S5: how the distribution sampled differs from the trainer's. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "geometric": "assay_policy_training.plugins.corrections.rejection:GeometricRejection",
    "icepop": "assay_policy_training.plugins.corrections.importance:TokenMis",
    "sequence_mis": "assay_policy_training.plugins.corrections.importance:SequenceMis",
    "sequence_tis": "assay_policy_training.plugins.corrections.importance:SequenceTis",
    "token_tis": "assay_policy_training.plugins.corrections.importance:TokenTis",
    "trust_region": "assay_policy_training.plugins.corrections.rejection:TrustRegionMask",
}
