"""S5: corrections for a sampler whose distribution differs from the trainer's."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

CORRECTIONS: Kind[type[Any]] = Kind(
    "correction",
    "Corrects for a sampler that differs from the trained policy (recipe section `corrections`).",
    members={
        "geometric": "assay_policy_training.plugins.corrections.rejection:GeometricRejection",
        "icepop": "assay_policy_training.plugins.corrections.importance:TokenMis",
        "sequence_mis": "assay_policy_training.plugins.corrections.importance:SequenceMis",
        "sequence_tis": "assay_policy_training.plugins.corrections.importance:SequenceTis",
        "token_tis": "assay_policy_training.plugins.corrections.importance:TokenTis",
        "trust_region": "assay_policy_training.plugins.corrections.rejection:TrustRegionMask",
    },
    requires=("needs", "correct"),
)
