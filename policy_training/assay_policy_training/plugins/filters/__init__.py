"""S4: which rows are trained on, and whether more are generated."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

GROUP_FILTERS: Kind[type[Any]] = Kind(
    "group_filter",
    "Selects the rollouts to train on (recipe section `filters`).",
    members={
        "enough_valid": "assay_policy_training.plugins.filters.enough_valid:EnoughValid",
        "guided_mixed": "assay_policy_training.plugins.filters.guided_mixed:GuidedMixed",
        "best_of_group": "assay_policy_training.plugins.filters.best_of_group:BestOfGroup",
        "dynamic_sampling": "assay_policy_training.plugins.filters.dynamic_sampling:DynamicSampling",
        "reject_zero_advantage": "assay_policy_training.plugins.filters.dynamic_sampling:RejectZeroAdvantage",
        "drop_solved": "assay_policy_training.plugins.filters.dynamic_sampling:DropSolved",
        "online_difficulty": "assay_policy_training.plugins.filters.online_difficulty:OnlineDifficulty",
        "only_correct": "assay_policy_training.plugins.filters.rows:OnlyCorrect",
        "only_wrong": "assay_policy_training.plugins.filters.rows:OnlyWrong",
        "overlong": "assay_policy_training.plugins.filters.rows:OverlongFilter",
        "dler": "assay_policy_training.plugins.filters.after_truncation:VariesAfterTruncation",
    },
    requires=("rounds", "keep"),
)
