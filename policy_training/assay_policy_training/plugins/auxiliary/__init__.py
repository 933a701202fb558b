"""S11: losses beside the policy's. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "kl": "assay_policy_training.plugins.auxiliary.kl:KlLoss",
    "hint_nll": "assay_policy_training.plugins.auxiliary.hint_nll:HintNll",
    "entropy": "assay_policy_training.plugins.auxiliary.entropy:EntropyBonus",
    "magic": "assay_policy_training.plugins.auxiliary.entropy:Magic",
    "teacher_kl": "assay_policy_training.plugins.auxiliary.teacher_kl:TeacherKl",
}
