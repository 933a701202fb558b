"""S16: what is measured of a run, and when it stops. `KINDS`: name in a recipe -> module:Class."""

KINDS: dict[str, str] = {}
STOP_KINDS: dict[str, str] = {
    "out_of_bounds": "assay_policy_training.plugins.watch.stop_rules:OutOfBounds",
    "no_progress": "assay_policy_training.plugins.watch.stop_rules:NoProgress",
}
