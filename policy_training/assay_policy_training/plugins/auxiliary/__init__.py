"""S11: losses added to the policy's."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

AUXILIARY_LOSSES: Kind[type[Any]] = Kind(
    "auxiliary_loss",
    "A loss added to the policy's (recipe section `auxiliary`).",
    members={
        "kl": "assay_policy_training.plugins.auxiliary.kl:KlLoss",
        "hint_nll": "assay_policy_training.plugins.auxiliary.hint_nll:HintNll",
        "entropy": "assay_policy_training.plugins.auxiliary.entropy:EntropyBonus",
        "magic": "assay_policy_training.plugins.auxiliary.entropy:Magic",
        "teacher_kl": "assay_policy_training.plugins.auxiliary.teacher_kl:TeacherKl",
    },
    requires=("name", "needs", "coefficient", "loss"),
)
