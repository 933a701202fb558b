"""Plans that `assay plan` has made, and the line of a training about its own.

Covers: plans in the user's cache folder by all that decides them (the model's configuration, settings, rows, card,
processes, versions); one line before a training, which reads a plan and never makes one: that takes 18 seconds of a
processor for 30 layers. Leaves out: making plans (`plan`), refusing what cannot fit (`least_memory`).
"""

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import NotFoundError
from assay.models.embedded import cache_folder
from assay.models.loading import resolve_model
from assay.planning.cards import memory_text, usable_memory
from assay.planning.plan import MemoryPlan, setting_text

if TYPE_CHECKING:
    import torch

_LIBRARIES = ("assay", "torch", "transformers")
#: Options of commands whose settings are elsewhere, or that train several.
_NOT_ALONE = ("--resume", "--seeds", "--sweep")


def keep_plan(plan: MemoryPlan, base: str, settings: Mapping[str, Any], ranks: int, rows: str) -> None:
    """For trainings of `base` with these settings on this card, of these `rows`: what it was planned for, in words that
    differ for others. A cache that cannot be written is left as it is."""
    file = _file(base, settings, plan.card.name, ranks, rows)
    stored = {name: value for name, value in plan.to_dict().items() if name != "alternatives"}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(stored))


def rows_of(data: str, snapshot: str | None = None) -> str:
    """Of a plan for the rows of a snapshot, or of a file as it is now."""
    if snapshot is None and (file := Path(data).expanduser()).is_file():
        snapshot = f"{datetime.fromtimestamp(file.stat().st_mtime):%Y-%m-%d %H:%M:%S}"
    return f"{data} ({snapshot})"


def prompts_of(tokens: int) -> str:
    """Of a plan for prompts of at most so many tokens."""
    return f"prompts of {tokens} tokens"


def show_plan_line(
    base: str,
    settings: Mapping[str, Any],
    device: "torch.device",
    ranks: int,
    rows: str,
) -> None:
    """On standard error: the plan of this training of these `rows`, or with which command to make it. For after the
    last check of settings: what is refused by them has no plan."""
    command = plan_command(sys.argv, ranks)
    print(plan_line(base, settings, *usable_memory(device), ranks, rows, command), file=sys.stderr, flush=True)


def plan_command(arguments: Sequence[str], ranks: int) -> str:
    """That plans the training of this process's `arguments`; "" where they are not the command of one training with
    all of its settings."""
    program, *words = arguments or [""]
    path = Path(program)
    if path.stem != "assay" and path.parts[-2:] not in (("assay", "__main__.py"), ("cli", "__main__.py")):
        return ""
    if words[:1] not in (["train"], ["rl"]) or any(word.partition("=")[0] in _NOT_ALONE for word in words):
        return ""
    return shlex.join(["assay", "plan", *(["--ranks", str(ranks)] if ranks > 1 else []), *words])


def plan_line(
    base: str, settings: Mapping[str, Any], card: str, usable: int, ranks: int, rows: str, command: str
) -> str:
    """See `show_plan_line`. `usable`: bytes of the card. `command`: "" for none."""
    try:
        plan = json.loads(_file(base, settings, card, ranks, rows).read_text())
        held, largest = memory_text(plan["bytes"], 1), int(plan["largest"])
        most = f"up to {largest} fits" if largest else "not even the smallest fits"
        fits = "" if plan["bytes"] <= usable else "warning: does not fit: "
        size = setting_text(plan["setting"], plan["size"])
    except (OSError, ValueError, KeyError, TypeError):
        hint = f"; peak memory and the largest micro-batch: {command}" if command else " (assay plan)"
        return f"plan: none yet for {card}, {memory_text(usable, 1)}{hint}"
    return f"plan: {fits}peak {held} of {memory_text(usable, 1)} ({card}) with {size}; {most}; of {rows}"


def _file(base: str, settings: Mapping[str, Any], card: str, ranks: int, rows: str) -> Path:
    model = base
    with suppress(NotFoundError, OSError):
        model = (Path(resolve_model(base)) / "config.json").read_text()
    decides = [{name: version(name) for name in _LIBRARIES}, model, settings, card, ranks, rows]
    key = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:32]
    return cache_folder() / "plans" / f"{key}.json"
