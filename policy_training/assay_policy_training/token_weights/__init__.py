"""S8: how much each token counts, and which count at all. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
