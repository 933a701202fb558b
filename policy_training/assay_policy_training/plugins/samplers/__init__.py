"""S2: samplers, which generate the rollouts."""

from __future__ import annotations

from typing import Any

from assay.registry import Kind

SAMPLERS: Kind[type[Any]] = Kind(
    "sampler",
    "Generates the rollouts (recipe section `sampler`).",
    members={
        "windowed": "assay_policy_training.plugins.samplers.windowed:Windowed",
        "vllm_server": "assay_policy_training.plugins.samplers.vllm.server:VllmServerSampler",
        "vllm": "assay_policy_training.plugins.samplers.vllm.in_process:Vllm",
        "transformers": "assay_policy_training.plugins.samplers.transformers:Transformers",
        "recorded": "assay_policy_training.plugins.samplers.recorded:RecordedResponses",
        "entropy_temperature": "assay_policy_training.plugins.samplers.entropy_temperature:EntropyTemperature",
    },
    requires=("open",),
)
