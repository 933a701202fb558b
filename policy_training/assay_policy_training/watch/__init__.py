"""S16: what is measured of a run, and when it stops. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
STOP_KINDS: dict[str, str] = {}
