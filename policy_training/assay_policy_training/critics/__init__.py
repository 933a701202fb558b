"""S12: value functions. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
