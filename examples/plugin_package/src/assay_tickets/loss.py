"""The loss `symmetric_sigmoid`."""

from __future__ import annotations

import torch


def symmetric_sigmoid(d: torch.Tensor) -> torch.Tensor:
    """s(-d), [B]: bounded and symmetric (l(d) + l(-d) = 1), so robust against flipped labels.

    Source: Ghosh et al., "Robust Loss Functions under Label Noise for Deep Neural Networks", AAAI 2017.
    """
    return torch.sigmoid(-d)
