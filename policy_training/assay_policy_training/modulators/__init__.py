"""S7: advantages, changed. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
