"""Frozen weights in the number format of the products: half the memory, and no cast in each pass.

Covers: which weights may be kept so, keeping them, float32 again before adapters are merged into them. Leaves out:
quantized weights.

Under autocast a linear layer's float32 weight is cast to bfloat16 in every pass. A weight that is not trained and that
bfloat16 holds exactly (checkpoints of large models are stored so) gives the same products when it is kept in bfloat16,
bit for bit. Embeddings and norms stay float32: the sum that layers add to would lose its precision with them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models import config_only


class FrozenLinear(nn.Linear):
    """A linear layer whose weight is bfloat16. Outside autocast the weight is cast to the input's format."""

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_autocast_enabled(input.device.type):
            return F.linear(input, self.weight, self.bias)
        return F.linear(input, self.weight.to(input.dtype), self.bias)


def keep_frozen(model: Any) -> int:
    """Keep the frozen weights of linear layers in bfloat16 where it holds them exactly; returns the bytes saved.

    Layers that share their weight with another (a tied head) and output layers, whose weights are read by other
    code than theirs, stay as they are.
    """
    read_elsewhere = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    saved = 0
    for module in list(model.modules()):
        if type(module) is not nn.Linear or id(module) in read_elsewhere or module.out_features == 1:
            continue
        weight = module.weight
        if weight.requires_grad or weight.dtype != torch.float32 or not _is_exact(model, weight):
            continue
        saved += weight.nbytes // 2
        module.weight = nn.Parameter(weight.detach().to(torch.bfloat16), requires_grad=False)
        module.__class__ = FrozenLinear
    return saved


def restore_frozen(model: Any) -> None:
    """Float32 weights again, in place, of what `keep_frozen` changed: what adapters are merged into."""
    for module in model.modules():
        if isinstance(module, FrozenLinear):
            module.weight = nn.Parameter(module.weight.detach().float(), requires_grad=False)
            module.__class__ = nn.Linear  # type: ignore[assignment]


@torch.no_grad()
def _is_exact(model: Any, weight: Tensor) -> bool:
    if config_only.active() is not None:  # without values: as the configuration says that they are stored
        return getattr(model, "stored_dtype", None) == torch.bfloat16
    return torch.equal(weight.to(torch.bfloat16).to(weight.dtype), weight)
