"""A training run's state on disk: written atomically, sufficient to resume exactly.

Covers: trainable weights, optimiser, random state, step, and what the state belongs to. Under FSDP2 weights and moments
are in a folder that the file names, each process's shares (`sharded_state`). A run should resume under another number
of processes or division of the work (torch's own resharding, not run). The learning rate and the data position are
functions of the step and need no state. Leaves out: the finished model (`checkpoint.py`), the weights of the best
evaluation (`early_stopping.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.errors import BadInputError, NotFoundError
from assay.models.parallelism.sharded_state import read_state, remove_states, write_state
from assay.models.parallelism.strategy import SingleProcess, scatter_optimizer
from assay.system.atomic_files import replacing

FILE = "state.pt"
SHARDS = "state-"  #: begin of the name of a folder with divided tensors
FORMAT, FORMAT_DIVIDED = 1, 2


@dataclass(frozen=True)
class Position:
    """Progress of the run after `step` optimiser steps."""

    step: int
    tokens: int  #: real tokens seen
    seconds: float  #: spent training, over all its processes


def save_state(
    folder: Path,
    position: Position,
    weights: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    *,
    belongs_to: Mapping[str, Any],
    parallel: SingleProcess | None = None,
) -> None:
    """Replace `folder/state.pt` atomically; a kill leaves the old file or the new one, with all that it names.

    All processes call this; the first writes the file, and under FSDP2 each its shares.
    """
    parallel = parallel or SingleProcess()
    state = {"weights": {name: p.detach() for name, p in weights.items()}, "optimizer": optimizer.state_dict()}
    stored, shards = write_state(state, folder, parallel, SHARDS)
    if parallel.main:
        payload = {
            "format": FORMAT if shards is None else FORMAT_DIVIDED,
            "position": (position.step, position.tokens, position.seconds),
            **stored,
            "shards": None if shards is None else shards.name,
            "random": _random_state(),
            "belongs_to": dict(belongs_to),
        }
        with replacing(folder / FILE) as temporary:
            torch.save(payload, temporary)
        remove_states(folder, SHARDS, but=shards)


def load_state(
    folder: Path,
    weights: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    *,
    belongs_to: Mapping[str, Any],
    parallel: SingleProcess | None = None,
) -> Position:
    """Put the saved state into the model, the optimiser and the random generators; returns the position.

    All processes call this. Raises NotFoundError where nothing was saved, BadInputError for a state of
    other data or another configuration.
    """
    parallel = parallel or SingleProcess()
    payload = _read(folder / FILE, weights, belongs_to) if parallel.main else None
    position: tuple[int, int, float] = parallel.share(payload["position"] if payload else None)
    shards = folder / payload["shards"] if payload and payload.get("shards") else None
    saved = {name: payload[name] for name in ("weights", "optimizer")} if payload else None
    state, _ = read_state(saved, shards, parallel)
    with torch.no_grad():
        for name, parameter in weights.items():
            parameter.copy_(parallel.scatter(state["weights"][name] if state else None, parameter))
    scatter_optimizer(state["optimizer"] if state else None, optimizer, parallel)
    if payload:
        torch.set_rng_state(payload["random"]["cpu"])
        if "cuda" in payload["random"] and torch.cuda.is_available():
            torch.cuda.set_rng_state(payload["random"]["cuda"])
    return Position(*position)


def _read(path: Path, weights: Mapping[str, torch.nn.Parameter], belongs_to: Mapping[str, Any]) -> dict[str, Any]:
    if not path.is_file():
        raise NotFoundError(f"{path.parent} has no {FILE}: the run ended before its first save; start a new run")
    try:
        payload: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no common error for a damaged file
        raise BadInputError(f"not a training state: {str(error).splitlines()[0]}", file=path) from error
    if payload.get("format") not in (FORMAT, FORMAT_DIVIDED):
        raise BadInputError(f"state format {payload.get('format')}, this Assay reads {FORMAT_DIVIDED}", file=path)
    for name, value in belongs_to.items():
        if (saved := payload["belongs_to"].get(name)) != value:
            raise BadInputError(f"the run was started with another {name} ({saved}, now {value})", file=path)
    if payload["weights"].keys() != weights.keys():
        raise BadInputError("the state is of another model", file=path)
    return payload


def _random_state() -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state
