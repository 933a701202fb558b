"""S1: what the policy sees of a prompt. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
