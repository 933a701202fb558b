"""The least that a training holds: whether it can fit at all, known before any weight is loaded.

Covers: weights, gradients and what the optimiser has, from configurations alone; one line that says what would take
less. Leaves out: activations and all else that a step takes (`assay plan`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from assay.errors import BadInputError, NotFoundError
from assay.models.loading import resolve_model
from assay.planning.cards import memory_text, usable_memory
from assay.planning.fake_step import fill, held, is_elsewhere, planned

#: What is loaded, and the optimisers of what is trained.
Load = Callable[[], tuple[Sequence[torch.nn.Module], Sequence[torch.optim.Optimizer]]]
#: Bytes of weights, gradients and optimiser for one of the checkpoint, at most: float32 for bfloat16, four times.
_MOST = 8


def require_memory(
    base: str, load: Load, changes: Mapping[str, Load], device: torch.device, ranks: int, setting: str
) -> None:
    """Raises BadInputError where the least memory of what `load` loads is more than this process's device has.

    `changes`: what could be done, in words, and the models with it. `ranks`: processes that share all of it. Models
    much smaller than the memory are not looked at.
    """
    name, usable = usable_memory(device)
    stored = _stored_bytes(base)
    if stored is not None and _MOST * stored < usable / 2:
        return
    if (needed := least_bytes(load, device.type) // ranks) <= usable:
        return
    less = {words: least_bytes(other, device.type) // ranks for words, other in changes.items()}
    would = [f"{words} ({memory_text(held, 1)} and activations)" for words, held in less.items() if held <= usable]
    if device.type == "cuda":
        would.append(f"--parallel fsdp on {-(-needed * ranks * 5 // (usable * 4))} or more of it")
    raise BadInputError(
        f"training {base} holds at least {memory_text(needed, 1)} of weights, gradients and optimiser, and {name} has "
        f"{memory_text(usable, 1)}; less would take: {', or '.join(would) or 'a smaller model'} (assay plan)",
        field=setting,
    )


def least_bytes(load: Load, kernels: str = "cpu") -> int:
    """Of one process that holds all. `kernels`: type of its device."""
    with planned(kernels):
        modules, optimisers = load()
        for optimiser in optimisers:
            fill(optimiser)
        local = [optimiser for optimiser in optimisers if not is_elsewhere(optimiser)]
        gradients: int = sum(
            p.nbytes for optimiser in local for group in optimiser.param_groups for p in group["params"]
        )
        return held(modules, optimisers) + gradients


def _stored_bytes(base: str) -> int | None:
    """None for a model that is not in a folder."""
    try:
        folder = Path(resolve_model(base))
    except NotFoundError:
        return None
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None
