"""The kinds of plug-ins that reward-model training can be extended by, for `assay plugins` and the registry."""

from typing import Any

from assay.registry import Kind
from assay_rm_training.attacks.attack import ATTACKS
from assay_rm_training.benchmarks.catalogue import BENCHMARKS
from assay_rm_training.methods.method import TRAINING_METHODS
from assay_rm_training.objectives.losses import LOSSES

KINDS: tuple[Kind[Any], ...] = (ATTACKS, BENCHMARKS, LOSSES, TRAINING_METHODS)
