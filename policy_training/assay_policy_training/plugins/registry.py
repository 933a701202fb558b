"""The plug-ins that a recipe can name, by slot.

Covers: the names of each slot, found without importing a plug-in until it is used; `package.module:Class` for plug-ins
of installed packages. Leaves out: reading recipes (`recipe_file`), the protocols (`slots`).
"""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from typing import Any

from assay.errors import BadInputError
from assay_policy_training.plugins import (
    aggregators,
    auxiliary,
    compositions,
    contexts,
    corrections,
    critics,
    estimators,
    filters,
    modulators,
    objectives,
    prompts,
    replay,
    samplers,
    schedules,
    shaping,
    token_weights,
    watch,
)

#: Section of a recipe -> name -> module:Class.
SLOTS: dict[str, dict[str, str]] = {
    "source": prompts.KINDS,
    "contexts": contexts.KINDS,
    "sampler": samplers.KINDS,
    "reward": compositions.KINDS,
    "filters": filters.KINDS,
    "shaping": shaping.KINDS,
    "critic": critics.KINDS,
    "estimator": estimators.KINDS,
    "modulators": modulators.KINDS,
    "corrections": corrections.KINDS,
    "replay": replay.KINDS,
    "token_weights": token_weights.KINDS,
    "objective": objectives.KINDS,
    "aggregation": aggregators.KINDS,
    "auxiliary": auxiliary.KINDS,
    "schedules": schedules.KINDS,
    "metrics": watch.KINDS,
    "stop": watch.STOP_KINDS,
}
#: What a plug-in of each slot must have, as its protocol in `slots` says; an objective of scope `group` has
#: `row_scores` and `batch_loss` instead of `loss`.
MEMBERS: dict[str, tuple[str, ...]] = {
    "source": ("open",),
    "contexts": ("first", "again"),
    "sampler": ("open",),
    "reward": ("__call__",),
    "filters": ("rounds", "keep"),
    "shaping": ("needs", "shape"),
    "critic": ("open",),
    "estimator": ("needs", "__call__"),
    "modulators": ("needs", "modulate"),
    "corrections": ("needs", "correct"),
    "replay": ("mix",),
    "token_weights": ("needs", "prepare", "weight"),
    "objective": ("scope", "needs"),
    "aggregation": ("needs", "__call__"),
    "auxiliary": ("name", "needs", "coefficient", "loss"),
    "schedules": ("value",),
    "metrics": ("measure",),
    "stop": ("reason",),
}
#: What a section that names no kind means.
DEFAULT_KINDS = {
    "source": "shuffled",
    "sampler": "transformers",
    "reward": "weighted",
    "aggregation": "mean",
}


def plugin_class(slot: str, kind: Any, where: str) -> type[Any]:
    """The dataclass of that name. Raises BadInputError naming the key `where` and what there is."""
    names = SLOTS[slot]
    if kind is None:
        kind = DEFAULT_KINDS.get(slot)
    target = names.get(kind) if isinstance(kind, str) else None
    if target is None:
        if not (isinstance(kind, str) and ":" in kind):
            wrong = "missing" if kind is None else f"unknown kind {kind!r}"
            there_is = f"one of {', '.join(sorted(names))}, or module:Class" if names else "none ships: module:Class"
            raise BadInputError(f"{wrong}; {there_is}", field=f"{where}.kind")
        target = kind
    module, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInputError(f"no plug-in {kind!r}: {error}", field=f"{where}.kind") from error
    if not (isinstance(found, type) and is_dataclass(found)):
        raise BadInputError(f"{kind!r} is not a dataclass", field=f"{where}.kind")
    if missing := [name for name in MEMBERS[slot] if not _has(found, name)]:
        raise BadInputError(
            f"{kind!r} cannot be a plug-in of {slot}: it has no {' and no '.join(missing)}", field=f"{where}.kind"
        )
    return found


def _has(cls: type[Any], name: str) -> bool:
    """Whether instances have it: a method, a class variable, a field. (Every class has `__call__` by its metaclass.)"""
    return any(name in vars(base) for base in cls.__mro__) or name in (f.name for f in fields(cls))


def kind_of(slot: str, cls: type[Any]) -> str:
    """The name by which a recipe finds the class."""
    target = f"{cls.__module__}:{cls.__qualname__}"
    names = {known: name for name, known in SLOTS[slot].items()}
    return names.get(target, target)
