"""AdamW in the host's memory: moments, float32 weights and gradients are there, and so is the update.

Covers: gradients that leave the device as each is complete, weights that go back after the update, linear layers whose
weights are bfloat16 on the device while the optimiser's are float32, its state. Of weights that are divided among
processes (FSDP2) each has its share on its host, and in float32 on its device. Leaves out: other optimisers
(`optimisers`).

The numbers are those of AdamW on the device. Under autocast a linear layer's product takes the weight rounded to
bfloat16, and its gradient is bfloat16: keeping the rounded weight on the device, and adding up the gradients in float32
on the host, changes neither.

The update waits for the copies, and the next pass for the update: nothing overlaps.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from assay.models.config_only import on_host
from assay.models.frozen_weights import halve, unhalve
from assay.models.host_memory import is_on_host, to_host


class OffloadedAdamW(torch.optim.AdamW):
    """Its parameters are the float32 weights on the host, `masters` by the model's own; a weight that is there in
    float32 is its own master.

    `halved`: linear layers of the model whose weights are bfloat16 on the device (`frozen_weights.halve`).
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], halved: Iterable[nn.Linear] = (), **options: Any) -> None:
        self._halved = [layer for layer in halved if not isinstance(layer.weight, DTensor)]
        rounded = {id(layer.weight) for layer in self._halved}
        host_groups: list[dict[str, Any]] = [dict(group) for group in groups]
        self.masters: dict[nn.Parameter, nn.Parameter] = {}
        with on_host():
            for parameter in (p for group in host_groups for p in group["params"]):
                is_master = is_on_host(parameter) and id(parameter) not in rounded
                self.masters[parameter] = parameter if is_master else nn.Parameter(to_host(parameter).float().clone())
        for layer in self._halved:
            halve(layer)
        moved = {p: master for p, master in self.masters.items() if p is not master}
        self._handles = [
            p.register_post_accumulate_grad_hook(_collect(master))  # type: ignore[no-untyped-call]
            for p, master in moved.items()
        ]
        for group in host_groups:
            group["params"] = [self.masters[p] for p in group["params"]]
        super().__init__(host_groups, fused=True, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        with on_host():
            loss = super().step(closure)
        self.publish()
        return loss

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the model's weights."""
        for parameter, master in self.masters.items():
            if parameter is not master:
                with on_host():
                    values = master.to(parameter.dtype)  # before the copy, which is half as long then
                parameter.copy_(values)

    def finish(self) -> None:
        """Float32 weights again, at the end of training: no step follows."""
        for handle in self._handles:
            handle.remove()
        for layer in self._halved:
            unhalve(layer)
        self.publish()
        self._halved, self._handles = [], []

    def state_dict(self) -> dict[str, Any]:
        """With the masters."""
        described = super().state_dict()
        described["state"] = {number: dict(state) for number, state in described["state"].items()}
        for number, (parameter, master) in enumerate(self.masters.items()):
            if parameter is not master:
                described["state"].setdefault(number, {})["master"] = master.detach()
        return described

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Also sets the model's weights, to those that were saved with the state."""
        states = {number: dict(state) for number, state in state_dict["state"].items()}
        for number, master in enumerate(self.masters.values()):
            if (saved := states.get(number, {}).pop("master", None)) is not None:
                master.copy_(saved)
        super().load_state_dict({**state_dict, "state": {number: state for number, state in states.items() if state}})
        self.publish()


def _collect(master: nn.Parameter) -> Callable[[nn.Parameter], None]:
    @torch.no_grad()
    def collect(parameter: nn.Parameter) -> None:
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        gradient = to_host(gradient)
        with on_host():
            if master.grad is None:
                master.grad = gradient.float()
            else:
                master.grad += gradient

    return collect
