"""Which recipes several processes can train together: a run that would be wrong is refused before its first step.

Covers: plug-ins that need a single process, or whole weights. Leaves out: how work is divided
(`assay.models.parallelism.strategy`), generating ahead, which needs actors then (`rollouts.collector`).
"""

from collections.abc import Mapping
from typing import Any

from assay.errors import BadInputError
from assay.models.parallelism.strategy import SingleProcess
from assay_policy_training.plugins.protocols import CarriesRows, Sampler


def check_parallel(parallel: SingleProcess, sampler: Sampler, plugins: Mapping[str, Any]) -> None:
    """Raises BadInputError where a part of the training does not work in several processes."""
    if parallel.world == 1:
        return
    if isinstance(sampler, CarriesRows):  # one that learns from the step's report learns the same everywhere
        raise BadInputError(
            f"carrying rows over to later steps does not work in {parallel.world} processes", field="sampler"
        )
    if parallel.equal_passes:
        for name, plugin in plugins.items():
            if getattr(plugin, "takes_gradients", False):
                raise BadInputError("computes gradients of whole weights; choose --parallel ddp", field=name)
