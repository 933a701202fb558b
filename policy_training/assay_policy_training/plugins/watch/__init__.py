"""S16: metrics of a run, and rules that end it."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

METRICS: Kind[type[Any]] = Kind(
    "policy_metric",
    "Measures each finished step (recipe section `metrics`).",
    requires=("measure",),
)
STOP_RULES: Kind[type[Any]] = Kind(
    "stop_rule",
    "Ends a run early (recipe section `stop`).",
    members={
        "out_of_bounds": "assay_policy_training.plugins.watch.stop_rules:OutOfBounds",
        "no_progress": "assay_policy_training.plugins.watch.stop_rules:NoProgress",
    },
    requires=("reason",),
)
