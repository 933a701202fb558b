"""Heads of published reward models: float32 outputs of hidden states, and the reward and named parts of a response.

Covers: linear heads with bias and normalisation, layers with an activation between, the difference of two labels, named
labels under weights, ratings under gates that depend on the conversation, logits of the language head. Leaves out:
which positions are read (`adapter`), where the weights come from (the families).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from assay.models.heads import answer_logits
from assay.score import ScorePart


class RewardHead(nn.Module):
    """`outputs`: float32 [P, K] of hidden states [P, H]. The reward is the first output at the last position read."""

    def outputs(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def reward(self, outputs: torch.Tensor) -> float:
        """Of one response, from its outputs [positions, K]."""
        return float(outputs[-1, 0])

    def parts(self, outputs: torch.Tensor) -> tuple[ScorePart, ...]:
        return ()


class LayeredHead(RewardHead):
    """Layers on the hidden state; (first output - mean) / std where given. `minus`: second output less the first, the
    log-odds of the second of two labels."""

    def __init__(self, layers: Sequence[nn.Module], *, mean: float = 0.0, std: float = 1.0, minus: bool = False):
        super().__init__()
        self.layers, self.mean, self.std, self.minus = nn.Sequential(*layers), mean, std, minus

    def outputs(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        raw: torch.Tensor = self.layers(states.float())
        if self.minus:
            raw = raw[:, 1:2] - raw[:, :1]
        return (raw - self.mean) / self.std


class LabelledHead(RewardHead):
    """Named ratings [K] of the last position; the reward is their sum under `weights`."""

    def __init__(self, layers: Sequence[nn.Module], names: Sequence[str], weights: Sequence[float]) -> None:
        super().__init__()
        self.layers, self.names, self.label_weights = nn.Sequential(*layers), tuple(names), tuple(weights)

    def outputs(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        ratings: torch.Tensor = self.layers(states.float())
        return ratings

    def reward(self, outputs: torch.Tensor) -> float:
        ratings = outputs[-1].tolist()
        return math.fsum(w * r for w, r in zip(self.label_weights, ratings, strict=True))

    def parts(self, outputs: torch.Tensor) -> tuple[ScorePart, ...]:
        return named_parts(self.names, outputs[-1].tolist(), self.label_weights)


class GatedHead(RewardHead):
    """Ratings [K] of the last position, each times a coefficient [K] of the first position read: a mixture that depends
    on the conversation. Where one position is read, it is both."""

    def __init__(self, ratings: nn.Module, gate: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.ratings, self.gate, self.names = ratings, gate, tuple(names)

    def outputs(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        """[P, 2 K]: ratings, then coefficients."""
        states = states.float()
        return torch.cat([self.ratings(states), self.gate(states)], 1)

    def reward(self, outputs: torch.Tensor) -> float:
        ratings, coefficients = self._read(outputs)
        return float(ratings @ coefficients)

    def parts(self, outputs: torch.Tensor) -> tuple[ScorePart, ...]:
        ratings, coefficients = self._read(outputs)
        return named_parts(self.names, ratings.tolist(), coefficients.tolist())

    def _read(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = len(self.names)
        return outputs[-1, :count], outputs[0, count:]


class LogitsHead(RewardHead):
    """A logit of the language head, or the difference of two: log P(first) - log P(second)."""

    def __init__(self, *tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def outputs(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        logits = answer_logits(model, states, self.tokens)
        return logits if len(self.tokens) == 1 else logits[:, :1] - logits[:, 1:]


class GatingLayers(nn.Module):
    """Coefficients of ratings [P, K]: softmax(layers(h) / temperature) * scale, through the transposed transform."""

    def __init__(
        self, layers: Sequence[nn.Module], *, temperature: float, scale: torch.Tensor, transform: torch.Tensor
    ) -> None:
        super().__init__()
        self.layers, self.temperature = nn.Sequential(*layers), temperature
        self.scale, self.transform = (nn.Parameter(t.float(), requires_grad=False) for t in (scale, transform))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.layers(states) / self.temperature, 1) * self.scale[0]
        return weights @ self.transform.T


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    """A float32 layer of these weights [out, in] and bias [out]."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def named_parts(names: Sequence[str], ratings: Sequence[float], weights: Sequence[float]) -> tuple[ScorePart, ...]:
    return tuple(ScorePart(n, reward=r, value=r, weight=w) for n, r, w in zip(names, ratings, weights, strict=True))
