"""S2: how rollouts are drawn. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "windowed": "assay_policy_training.plugins.samplers.windowed:Windowed",
    "vllm_server": "assay_policy_training.plugins.samplers.vllm.server:VllmServer",
    "vllm": "assay_policy_training.plugins.samplers.vllm.in_process:Vllm",
    "transformers": "assay_policy_training.plugins.samplers.transformers:Transformers",
    "recorded": "assay_policy_training.plugins.samplers.recorded:Recorded",
    "entropy_temperature": "assay_policy_training.plugins.samplers.entropy_temperature:EntropyTemperature",
}
