"""A training run's state on disk: written whole or not at all, enough to go on bit for bit.

Covers: trainable weights, optimiser, random state, step, and what the state belongs to. The learning rate and the
data position are functions of the step and need no state. Leaves out: the finished model (`checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.durable import replacing
from assay.errors import BadInputError, NotFoundError

FILE = "state.pt"
FORMAT = 1


@dataclass(frozen=True)
class Position:
    """Where the run stands after `step` optimiser steps."""

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
) -> None:
    """Replace `folder/state.pt` atomically; a kill at any moment leaves the old one or the new one."""
    payload = {
        "format": FORMAT,
        "position": (position.step, position.tokens, position.seconds),
        "weights": {name: p.detach() for name, p in weights.items()},
        "optimizer": optimizer.state_dict(),
        "random": _random_state(),
        "belongs_to": dict(belongs_to),
    }
    with replacing(folder / FILE) as temporary:
        torch.save(payload, temporary)


def load_state(
    folder: Path,
    weights: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    *,
    belongs_to: Mapping[str, Any],
) -> Position:
    """Put the saved state into the model, the optimiser and the random generators; returns the position.

    Raises NotFoundError where nothing was saved, BadInputError for a state of other data or another configuration.
    """
    path = folder / FILE
    if not path.is_file():
        raise NotFoundError(f"{folder} has no {FILE}: the run ended before its first save; start it anew")
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no common error for a damaged file
        raise BadInputError(f"not a training state: {str(error).splitlines()[0]}", file=path) from error
    if payload.get("format") != FORMAT:
        raise BadInputError(f"state format {payload.get('format')}, this Assay reads {FORMAT}", file=path)
    for name, value in belongs_to.items():
        if (found := payload["belongs_to"].get(name)) != value:
            raise BadInputError(f"the run was started with another {name} ({found}, now {value})", file=path)
    if payload["weights"].keys() != weights.keys():
        raise BadInputError("the state is of another model", file=path)
    with torch.no_grad():
        for name, parameter in weights.items():
            parameter.copy_(payload["weights"][name])
    optimizer.load_state_dict(payload["optimizer"])
    torch.set_rng_state(payload["random"]["cpu"])
    if "cuda" in payload["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(payload["random"]["cuda"])
    return Position(*payload["position"])


def _random_state() -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state
