"""S7: changes of advantages."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

MODULATORS: Kind[type[Any]] = Kind(
    "modulator",
    "Changes advantages (recipe section `modulators`).",
    members={
        "whitening": "assay_policy_training.plugins.modulators.whitening:Whitening",
        "clip": "assay_policy_training.plugins.modulators.clip:ClipAdvantage",
        "three_sigma": "assay_policy_training.plugins.modulators.three_sigma:ThreeSigma",
        "mrt": "assay_policy_training.plugins.modulators.progress:BlockProgress",
        "empg": "assay_policy_training.plugins.modulators.empg:Empg",
        "effective_rank": "assay_policy_training.plugins.modulators.effective_rank:EffectiveRank",
        "exploration": "assay_policy_training.plugins.modulators.exploration:Exploration",
        "future_kl": "assay_policy_training.plugins.modulators.future_kl:FutureKl",
        "dr_irl": "assay_policy_training.plugins.modulators.reward_scaling:RewardScaling",
    },
    requires=("needs", "modulate"),
)
