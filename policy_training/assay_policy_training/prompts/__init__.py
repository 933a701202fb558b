"""Where the prompts of a policy run come from."""

KINDS: dict[str, str] = {
    "shuffled": "assay_policy_training.prompts.source:Shuffled",
    "mixed": "assay_policy_training.prompts.streams:Mixed",
    "stages": "assay_policy_training.prompts.stages:Stages",
    "dump": "assay_policy_training.prompts.dump:Dump",
    "gain_rl": "assay_policy_training.prompts.gain_rl:GainRl",
    "one_shot": "assay_policy_training.prompts.one_shot:OneShot",
}
