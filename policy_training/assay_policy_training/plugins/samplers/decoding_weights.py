"""The weights of generation under autocast, cast once instead of at every token.

Covers: float32 weights of linear layers in autocast's number format, kept as long as a generation and cast again where
an update has changed them; the same products as autocast's, which casts them in every pass. Leaves out: weights that
are kept in another format (`assay.models.frozen_weights`, quantized ones) or divided among processes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class DecodingWeights:
    """Of one model; holds half of the memory of what it casts."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._casts: dict[str, Tensor] = {}
        self._of: list[tuple[Tensor, int]] = []  #: the weights cast, and their versions then

    def __call__(self, **inputs: Any) -> Any:
        """The model's answer."""
        weights = float32_weights(self._model)
        if self._changed(weights):
            kind = next(iter(weights.values())).device.type
            self._of = [(weight, weight._version) for weight in weights.values()]
            self._casts = {name: each.detach().to(torch.get_autocast_dtype(kind)) for name, each in weights.items()}
        return functional_call(self._model, self._casts, kwargs=inputs, tie_weights=False)

    def _changed(self, weights: dict[str, Tensor]) -> bool:
        now = list(weights.values())
        return len(now) != len(self._of) or any(
            weight is not cast or weight._version != version
            for weight, (cast, version) in zip(now, self._of, strict=True)
        )


def float32_weights(model: Any) -> dict[str, Tensor]:
    """Of linear layers, by name: what autocast casts in every pass."""
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and module.weight.dtype == torch.float32
        and (type(module.weight) is nn.Parameter or hasattr(module.weight, "fake_mode"))
    }


def cast_bytes(model: Any) -> int:
    """That `DecodingWeights` of this model hold."""
    return sum(weight.nbytes for weight in float32_weights(model).values()) // 2
