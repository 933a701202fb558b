"""What of policy training several processes can share: a run that would be wrong is refused before its first step.

Covers: the plug-ins that need one process, or whole weights. Leaves out: how work is divided
(`assay.models.parallelism.strategy`), who draws what and that nothing is drawn ahead (`collection`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay_policy_training.plugins.protocols import Carries, Publishes

if TYPE_CHECKING:
    from assay_policy_training.training.loop import PolicyTrainer


def check_division(trainer: PolicyTrainer) -> None:
    """Raises BadInputError where the trainer's parts do not work in several processes."""
    parallel, sampler = trainer.policy.parallel, trainer.sampler
    if parallel.world == 1:
        return
    together = f"in {parallel.world} processes"
    if isinstance(sampler, Publishes):
        raise BadInputError(f"an engine with weights of its own cannot be shared {together}", field="sampler")
    if isinstance(sampler, Carries):  # one that learns from the step's report learns the same everywhere
        raise BadInputError(f"a sampler that carries rows on does not work {together}", field="sampler")
    if parallel.equal_passes:
        for name, plugin in trainer.plugins().items():
            if getattr(plugin, "takes_gradients", False):
                raise BadInputError("takes gradients itself, of whole weights; choose --parallel ddp", field=name)
