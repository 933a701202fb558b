"""S8: how much each token counts, and which tokens count at all."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

TOKEN_WEIGHTS: Kind[type[Any]] = Kind(
    "token_weight",
    "Weights the loss of single tokens (recipe section `token_weights`).",
    members={
        "clip_cov": "assay_policy_training.plugins.token_weights.covariance:ClipCov",
        "high_entropy": "assay_policy_training.plugins.token_weights.high_entropy:HighEntropy",
        "steer": "assay_policy_training.plugins.token_weights.steer:Steer",
        "not_truncated": "assay_policy_training.plugins.token_weights.not_truncated:NotTruncated",
    },
    requires=("needs", "prepare", "weight"),
)
