"""S3: from named reward parts to one reward. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "weighted": "assay_policy_training.plugins.compositions.weighted:Composition",
    "gated": "assay_policy_training.plugins.compositions.gated:GatedAccumulation",
    "stable_reinforce": "assay_policy_training.plugins.compositions.gated:ConsistencyReward",
    "soft_penalties": "assay_policy_training.plugins.compositions.gated:SoftPenalties",
    "constrained": "assay_policy_training.plugins.compositions.constrained:Constrained",
    "hypervolume": "assay_policy_training.plugins.compositions.hypervolume:HypervolumeWeighting",
    "gradient_weights": "assay_policy_training.plugins.compositions.gradient_weights:GradientWeighting",
    "maxmin": "assay_policy_training.plugins.compositions.maxmin:MaxMin",
    "dpa": "assay_policy_training.plugins.compositions.directional:Directional",
}
