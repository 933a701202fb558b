"""The optimisers of trainings, by name: reward models', policies' and their critics'.

Covers: making one, what it changes and where that is. Leaves out: rates and schedules, the update on the host
(`offloaded`), the choice (`memory_options`).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from assay.models.memory_options import OptimizerName, require_bitsandbytes

if TYPE_CHECKING:
    import torch

    from assay.models.offloaded import OffloadedAdamW

#: Least epsilon of moments in 8 bit: a second moment that rounds to 0 must not make an update of its first.
EPS_8BIT = 1e-8


def make_optimiser(
    name: OptimizerName,
    groups: Iterable[dict[str, Any]],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float = 1e-8,
    model: Any = None,
) -> "torch.optim.Optimizer":
    """Of `groups` as torch has them. `model`: whose trained linear layers may be bfloat16 while their float32 weights
    are on the host; None where its products are float32.

    Raises BadInputError where what it needs is not installed.
    """
    import torch

    groups = list(groups)
    if name == "adafactor":
        return torch.optim.Adafactor(groups, lr=lr)
    options: dict[str, Any] = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0}
    if name == "adamw_8bit":
        require_bitsandbytes("optimizer")
        from assay.models.eight_bit import DividedAdamW8bit

        return DividedAdamW8bit(groups, **options | {"eps": max(eps, EPS_8BIT)})  # type: ignore[no-untyped-call]
    if name == "adamw_offloaded":
        from assay.models.frozen_weights import linear_layers
        from assay.models.offloaded import OffloadedAdamW

        return OffloadedAdamW(groups, linear_layers(model, trained=True) if model is not None else (), **options)
    # Fused: the same numbers in one pass over the weights.
    return torch.optim.AdamW(groups, fused=True, **options)


def optimised(
    optimiser: "torch.optim.Optimizer", weights: Mapping[str, "torch.nn.Parameter"]
) -> "dict[str, torch.nn.Parameter]":
    """By the names of the model's `weights`, what has their gradients and what the optimiser changes: on the host where
    the optimiser is, else themselves. What is written to it reaches the model by `publish`."""
    offloaded = _offloaded(optimiser)
    return dict(weights) if offloaded is None else {name: offloaded.masters[p] for name, p in weights.items()}


def publish(optimiser: "torch.optim.Optimizer") -> None:
    if (offloaded := _offloaded(optimiser)) is not None:
        offloaded.publish()


def finish(optimiser: "torch.optim.Optimizer") -> None:
    """At the end of training: the model's weights are float32, whatever they were kept in."""
    if (offloaded := _offloaded(optimiser)) is not None:
        offloaded.finish()


def _offloaded(optimiser: "torch.optim.Optimizer") -> "OffloadedAdamW | None":
    from assay.models.offloaded import OffloadedAdamW

    return optimiser if isinstance(optimiser, OffloadedAdamW) else None
