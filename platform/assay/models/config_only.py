"""Models of a configuration alone, on fake tensors: shapes and sizes without memory, to plan a training.

Covers: what is active while a plan is made, building such a model, the kernels to plan for. Leaves out: loading
(`loading`, which builds through here while it is active), measuring (`assay.planning`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode


@dataclass(frozen=True)
class ConfigOnly:
    """`kernels`: type of the device whose attention is planned for; the tensors themselves are of the CPU, because
    a build of torch without CUDA computes no gradients of fake CUDA tensors."""

    mode: "FakeTensorMode"
    kernels: str

    def build(self, kind: Any, config: Any, dtype: "torch.dtype", num_labels: int | None = None) -> Any:
        """A model of the class (or auto class) `kind`, uninitialised; `stored_dtype`: of its checkpoint's weights."""
        from transformers.initialization import no_init_weights

        if num_labels is not None:
            config.num_labels = num_labels
        make = getattr(kind, "from_config", None) or kind._from_config
        stored = getattr(config, "dtype", None)
        with self.mode, no_init_weights():
            model = make(config, dtype=dtype)
        model.tie_weights()
        model.stored_dtype = stored
        return model


_active: list[ConfigOnly] = []


def active() -> ConfigOnly | None:
    return _active[-1] if _active else None


@contextmanager
def config_only(mode: "FakeTensorMode", kernels: str) -> Iterator[None]:
    """Until the end of the block every model that is loaded is built on fake tensors of `mode` instead."""
    _active.append(ConfigOnly(mode, kernels))
    try:
        yield
    finally:
        _active.pop()


_on_host: list[None] = []


@contextmanager
def on_host() -> Iterator[None]:
    """What is allocated until the end of the block is in the host's memory: no memory of a planned card."""
    _on_host.append(None)
    try:
        yield
    finally:
        _on_host.pop()


def counts_as_host() -> bool:
    """Whether what is allocated now would not be on the card that is planned for."""
    return bool(_on_host) and bool(_active) and _active[-1].kernels != "cpu"


def kernels_of(tensor: "torch.Tensor") -> str:
    """Type of the device whose kernels compute with `tensor`."""
    return _active[-1].kernels if _active else tensor.device.type
