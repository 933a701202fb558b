"""S13: settings that change with the steps. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
