"""Where the prompts of a policy run come from."""
