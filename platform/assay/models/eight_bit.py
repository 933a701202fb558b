"""AdamW whose moments are 8 bit (bitsandbytes), also of weights of which each process holds a share (FSDP2).

Each process quantizes the moments of its own share, in blocks of 256 numbers; a weight is large enough for 8 bit by the
whole of it, so that all processes hold the same formats. In a state the moments are divided as the weight is; the
scales of a process's blocks are one row of a divided table, of its longest share. As the blocks follow the shares, a
state is read by as many processes as wrote it. Leaves out: float32 moments, the choice (`optimisers`).
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from bitsandbytes.optim.adamw import AdamW8bit
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from assay.errors import BadInputError

BY_SHARES = "moments in 8 bit are saved and read by shares: every process must see the run's folder; or use adamw"
_BLOCK = 256  #: numbers of a scale
_SCALES = ("absmax1", "absmax2")
_MOMENTS = ("state1", "state2")


class DividedAdamW8bit(AdamW8bit):
    """Its parameters may be divided tensors."""

    def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config(gindex, pindex, group)  # type: ignore[no-untyped-call]
        large = self.param_groups[gindex]["params"][pindex].numel() >= config["min_8bit_size"]
        return config | {"min_8bit_size": 0 if large else sys.maxsize}

    def init_state(self, group: dict[str, Any], p: Tensor, gindex: int, pindex: int) -> None:
        with self._share(p) as share:
            super().init_state(group, share, gindex, pindex)  # type: ignore[no-untyped-call]

    def update_step(self, group: dict[str, Any], p: Tensor, gindex: int, pindex: int) -> None:
        with self._share(p) as share:
            if share.numel():
                super().update_step(group, share, gindex, pindex)  # type: ignore[no-untyped-call]

    @contextmanager
    def _share(self, p: Tensor) -> Iterator[Tensor]:
        """This process's numbers of a weight and its gradient, in their own memory, with the weight's state."""
        if not isinstance(p, DTensor):
            yield p
            return
        share: Tensor = p.to_local().detach()
        share.grad = p.grad.to_local() if isinstance(p.grad, DTensor) else None
        self.state[share] = self.state[p]
        try:
            yield share
        finally:
            del self.state[share]

    def state_dict(self) -> dict[str, Any]:
        if not any(isinstance(p, DTensor) for p in self._weights()):
            described: dict[str, Any] = super().state_dict()  # type: ignore[no-untyped-call]
            return described
        described = torch.optim.Optimizer.state_dict(self)
        weights = self._weights()
        described["state"] = {n: _divided(state, weights[n]) for n, state in described["state"].items()}
        return described

    def load_state_dict(self, state_dict: Mapping[str, Any], move_to_device: bool = True) -> None:
        """Raises BadInputError for moments that another number of processes wrote."""
        weights = self._weights()
        local = {n: _local(state, weights[n]) for n, state in state_dict["state"].items()}
        super().load_state_dict({**state_dict, "state": local}, move_to_device)  # type: ignore[no-untyped-call]

    def _weights(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


def _divided(state: Mapping[str, Any], weight: Tensor) -> dict[str, Any]:
    if not isinstance(weight, DTensor):
        return dict(state)
    mesh, most, divided = weight.device_mesh, _most_blocks(weight), dict(state)
    for key in _MOMENTS:
        size, stride = weight.size(), weight.stride()
        local: Tensor = state[key]
        divided[key] = DTensor.from_local(local, mesh, weight.placements, run_check=False, shape=size, stride=stride)
    for key in filter(state.__contains__, _SCALES):
        row = torch.nn.functional.pad(state[key], (0, most - len(state[key])))
        divided[key] = DTensor.from_local(row[None], mesh, [Shard(0)], run_check=False)
    return divided


def _local(state: Mapping[str, Any], weight: Tensor) -> dict[str, Any]:
    """Inverse of `_divided`."""
    processes = weight.device_mesh.size() if isinstance(weight, DTensor) else 1
    moments = state.get("state1", {})  # bitsandbytes' own state has them deeper
    wrote = len(state["absmax1"]) if "absmax1" in state and state["absmax1"].ndim == 2 else processes
    if wrote != processes or isinstance(moments, DTensor) != isinstance(weight, DTensor):
        reason = f"moments in 8 bit are read by as many processes as wrote them, not by {processes}"
        raise BadInputError(f"{reason}; resume with as many, or use adamw", field="optimizer")
    if not isinstance(weight, DTensor):
        return dict(state)
    if not all(isinstance(state[key], DTensor) for key in _SCALES if key in state):
        raise BadInputError(BY_SHARES, field="optimizer")
    local = {key: value.to_local() if isinstance(value, DTensor) else value for key, value in state.items()}
    blocks = -(-weight.to_local().numel() // _BLOCK)
    return local | {key: local[key][0, :blocks].clone() for key in _SCALES if key in local}


def _most_blocks(weight: DTensor) -> int:
    """Of the first process, whose share is the largest."""
    rows = -(-weight.shape[0] // weight.device_mesh.size())
    return -(-rows * (weight.numel() // max(1, weight.shape[0])) // _BLOCK)
