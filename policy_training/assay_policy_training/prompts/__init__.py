"""Where the prompts of a policy run come from."""

KINDS: dict[str, str] = {
    "shuffled": "assay_policy_training.prompts.source:Shuffled",
}
