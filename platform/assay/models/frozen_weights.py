"""Weights in the number format of the products: half the memory, and no cast in each pass.

Covers: which frozen weights may be kept so, keeping them; the same of one trained layer, whose float32 weight is
elsewhere (`offloaded`). Leaves out: what 4 bit are (`four_bit`).

Under autocast a linear layer's float32 weight is cast to bfloat16 in every pass. A weight that is not trained and that
bfloat16 holds exactly (checkpoints of large models are stored so) gives the same products when it is kept in bfloat16,
bit for bit. Embeddings and norms stay float32: the sum that layers add to would lose its precision with them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models import config_only
from assay.models.four_bit import quantize
from assay.models.memory_options import BaseWeights
from assay.models.unread_weights import set_format, source_of


class Bfloat16Linear(nn.Linear):
    """A linear layer whose weight is bfloat16. Outside autocast the weight is cast to the input's format."""

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_autocast_enabled(input.device.type):
            return F.linear(input, self.weight, self.bias)
        return F.linear(input, self.weight.to(input.dtype), self.bias)


def keep_frozen(model: Any, weights: BaseWeights = "auto", device: torch.device | None = None) -> int:
    """Keep the frozen weights of linear layers in bfloat16, or in 4 bit; then the model is moved to `device`, layer by
    layer. Returns the bytes saved.

    `auto`: in bfloat16 those that it holds exactly. Layers that share their weight with another (a tied head) and
    heads, whose weights are read by other code than theirs, stay as they are.
    """
    before: int = sum(p.nbytes for p in model.parameters())
    for layer in linear_layers(model, trained=False) if weights != "float32" else ():
        if weights == "4bit":
            quantize(layer, device or layer.weight.device)
        elif weights == "bfloat16" or _is_exact(model, layer.weight):
            halve(layer)
    if weights == "4bit" and device not in (None, model.device):
        model.to(device)
    after: int = sum(p.nbytes for p in model.parameters())
    return before - after


def linear_layers(model: Any, *, trained: bool) -> list[nn.Linear]:
    """Layers below the heads with a float32 weight that nothing else reads."""
    read_elsewhere = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    return [
        module
        for module in getattr(model, model.base_model_prefix, model).modules()
        if type(module) is nn.Linear
        and id(module) not in read_elsewhere
        and module.weight.requires_grad == trained
        and module.weight.dtype == torch.float32
    ]


def halve(layer: nn.Linear) -> None:
    """Round its weight to bfloat16, in place."""
    set_format(layer.weight, torch.bfloat16)
    layer.__class__ = Bfloat16Linear


def unhalve(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.float()
    layer.__class__ = nn.Linear


def loading_device(weights: BaseWeights, device: torch.device) -> torch.device:
    """Where the whole model is loaded to: weights that will be a seventh of it may be more than the device has."""
    return torch.device("cpu") if weights == "4bit" else device


@torch.no_grad()
def _is_exact(model: Any, weight: Tensor) -> bool:
    if config_only.active() is not None:  # without values: as the configuration says that they are stored
        return getattr(model, "stored_dtype", None) == torch.bfloat16
    if (source := source_of(weight)) is not None:
        return source.number_format == "BF16"
    return torch.equal(weight.to(torch.bfloat16).to(weight.dtype), weight)
