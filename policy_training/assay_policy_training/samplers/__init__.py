"""S2: how rollouts are drawn. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {
    "transformers": "assay_policy_training.samplers.transformers_sampler:Transformers",
    "entropy_temperature": "assay_policy_training.samplers.entropy_temperature:EntropyTemperature",
}
