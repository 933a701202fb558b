"""The slots of a recipe: which of its sections hold plug-ins, and of which kind. Imports nothing heavy.

A member of a slot is a dataclass whose fields are its settings; its kind says which attributes it must have, those of
its protocol (`plugins.protocols`). An objective of scope `group` has `row_scores` and `batch_loss`, any other `loss`.
"""

from __future__ import annotations

from typing import Any

from assay.registry import Kind
from assay_policy_training.plugins.aggregators import AGGREGATORS
from assay_policy_training.plugins.auxiliary import AUXILIARY_LOSSES
from assay_policy_training.plugins.compositions import REWARD_COMPOSITIONS
from assay_policy_training.plugins.contexts import CONTEXT_POLICIES
from assay_policy_training.plugins.corrections import CORRECTIONS
from assay_policy_training.plugins.critics import CRITICS
from assay_policy_training.plugins.estimators import ESTIMATORS
from assay_policy_training.plugins.filters import GROUP_FILTERS
from assay_policy_training.plugins.modulators import MODULATORS
from assay_policy_training.plugins.objectives import OBJECTIVES
from assay_policy_training.plugins.prompts import PROMPT_ORDERS
from assay_policy_training.plugins.replay import REPLAYS
from assay_policy_training.plugins.samplers import SAMPLERS
from assay_policy_training.plugins.schedules import SCHEDULES
from assay_policy_training.plugins.shaping import REWARD_SHAPERS
from assay_policy_training.plugins.token_weights import TOKEN_WEIGHTS
from assay_policy_training.plugins.watch import METRICS, STOP_RULES

#: Section of a recipe -> the kind of its plug-ins.
SLOTS: dict[str, Kind[type[Any]]] = {
    "source": PROMPT_ORDERS,
    "contexts": CONTEXT_POLICIES,
    "sampler": SAMPLERS,
    "reward": REWARD_COMPOSITIONS,
    "filters": GROUP_FILTERS,
    "shaping": REWARD_SHAPERS,
    "critic": CRITICS,
    "estimator": ESTIMATORS,
    "modulators": MODULATORS,
    "corrections": CORRECTIONS,
    "replay": REPLAYS,
    "token_weights": TOKEN_WEIGHTS,
    "objective": OBJECTIVES,
    "aggregation": AGGREGATORS,
    "auxiliary": AUXILIARY_LOSSES,
    "schedules": SCHEDULES,
    "metrics": METRICS,
    "stop": STOP_RULES,
}
#: The plug-in of a section that names none.
DEFAULTS = {"source": "shuffled", "sampler": "transformers", "reward": "weighted", "aggregation": "mean"}
