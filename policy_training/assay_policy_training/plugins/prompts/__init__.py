"""Where the prompts of a policy run come from."""

KINDS: dict[str, str] = {
    "shuffled": "assay_policy_training.plugins.prompts.source:Shuffled",
    "mixed": "assay_policy_training.plugins.prompts.streams:Mixed",
    "stages": "assay_policy_training.plugins.prompts.stages:Stages",
    "dump": "assay_policy_training.plugins.prompts.dump:Dump",
    "gain_rl": "assay_policy_training.plugins.prompts.gain_rl:GainRl",
    "one_shot": "assay_policy_training.plugins.prompts.one_shot:OneShot",
}
