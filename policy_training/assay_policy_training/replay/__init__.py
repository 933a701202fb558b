"""S15: rows of other steps and other sources. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
