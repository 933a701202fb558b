"""S12: value functions."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

CRITICS: Kind[type[Any]] = Kind(
    "critic",
    "A value function (recipe section `critic`).",
    members={
        "value_model": "assay_policy_training.plugins.critics.value_model:ValueModel",
    },
    requires=("open",),
)
