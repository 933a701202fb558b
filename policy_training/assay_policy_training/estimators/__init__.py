"""S6: from rewards to advantages. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "grpo": "assay_policy_training.estimators.group_relative:Grpo",
    "dr_grpo": "assay_policy_training.estimators.group_relative:DrGrpo",
    "rloo": "assay_policy_training.estimators.group_relative:Rloo",
    "gae": "assay_policy_training.estimators.gae:Gae",
    "returns_to_go": "assay_policy_training.estimators.gae:ReturnsToGo",
    "token_level": "assay_policy_training.estimators.token_level:TokenLevel",
    "constant": "assay_policy_training.estimators.constant:Constant",
}
