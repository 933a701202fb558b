"""S1: what the policy sees of a prompt."""
