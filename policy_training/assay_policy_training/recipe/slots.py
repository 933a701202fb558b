"""The slots of a recipe: which of its sections hold plug-ins, of which kind, with the built-in members, as `slots.toml`
lists them. Imports nothing heavy.

A member of a slot is a dataclass whose fields are its settings; its kind says which attributes it must have, those of
its protocol (`plugins.protocols`). An objective of scope `group` has `row_scores` and `batch_loss`, any other `loss`.
"""

import tomllib
from pathlib import Path
from typing import Any

from assay.registry import Kind

_SLOTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
#: Section of a recipe -> the kind of its plug-ins.
SLOTS: dict[str, Kind[type[Any]]] = {
    section: Kind(
        slot["kind"],
        f"{slot['summary']} (recipe section `{section}`).",
        {name: f"assay_policy_training.{slot['folder']}.{target}" for name, target in slot.get("members", {}).items()},
        tuple(slot["requires"]),
    )
    for section, slot in _SLOTS.items()
}
#: The plug-in of a section that names none.
DEFAULTS = {"source": "shuffled", "sampler": "auto", "reward": "weighted", "aggregation": "mean"}
