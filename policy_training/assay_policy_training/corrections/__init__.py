"""S5: how the distribution sampled differs from the trainer's. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
