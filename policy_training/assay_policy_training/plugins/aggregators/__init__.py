"""S10: from token losses to one number."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

AGGREGATORS: Kind[type[Any]] = Kind(
    "aggregator",
    "Reduces token losses to one number (recipe section `aggregation`).",
    members={
        "mean": "assay_policy_training.core.aggregation:LossAggregation",
    },
    requires=("needs", "__call__"),
)
