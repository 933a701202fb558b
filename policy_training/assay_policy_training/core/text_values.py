"""Values of texts: a logistic model of hashed words, and of pairs of a word of the context and one of the text.

    values = TextValues()
    values.fit([("buy: tan mug", "tan mug: wrap buy"), ("buy: tan mug", "red pen: wrap buy")], [1.0, 0.0])
    values([("buy: tan mug", "tan mug: wrap buy")])

Covers: fitting from the start on whatever is remembered, so that the memory alone is the state of what uses it; targets
in [0, 1] (outcomes, discounted returns). It is a critic of small text environments that a CPU fits in a second. Leaves
out: values by token from a model's states (`plugins.critics`), which read any text.
"""

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.errors import BadInputError

Pair = tuple[str, str]


class TextValues:
    """`size`: features, of which hashed words may share some. `decay`: of the weights, against few examples."""

    def __init__(self, size: int = 4096, decay: float = 1e-4) -> None:
        self.decay = decay
        self.weights = torch.zeros(size)
        self.bias = torch.zeros(1)

    def fit(self, pairs: Sequence[Pair], targets: Sequence[float], iterations: int = 50) -> None:
        """The weights of least cross entropy, found anew: the same rows give the same weights."""
        index = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        rows = torch.tensor([index[pair] for pair in pairs])
        counts = torch.bincount(rows).float()
        means = torch.zeros(len(index)).index_add_(0, rows, torch.tensor(targets, dtype=torch.float32)) / counts
        shares, features = counts / counts.sum(), self._features(index)
        weights, bias = torch.zeros_like(self.weights, requires_grad=True), torch.zeros(1, requires_grad=True)
        optimiser = torch.optim.LBFGS([weights, bias], max_iter=iterations, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            errors = torch.nn.functional.binary_cross_entropy_with_logits(
                self._logits(features, weights, bias), means, reduction="none"
            )
            total = (errors * shares).sum() + self.decay * weights.square().sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimiser.step(loss)  # type: ignore[no-untyped-call]
        self.weights, self.bias = weights.detach(), bias.detach()

    @torch.no_grad()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        """In [0, 1]; 0.5 before there was anything to fit."""
        return (
            list(torch.sigmoid(self._logits(self._features(pairs), self.weights, self.bias)).tolist()) if pairs else []
        )

    def save(self, file: Path | str) -> None:
        Path(file).write_text(
            json.dumps({"weights": self.weights.tolist(), "bias": float(self.bias)}), encoding="utf-8"
        )

    @classmethod
    def load(cls, file: Path | str) -> "TextValues":
        """Raises BadInputError for a file that `save` did not write."""
        try:
            payload: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
            values = cls(len(payload["weights"]))
            values.weights, values.bias = torch.tensor(payload["weights"]), torch.tensor([float(payload["bias"])])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"holds no values of texts: {error}", file=Path(file)) from error
        return values

    def _logits(self, features: tuple[Tensor, Tensor], weights: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.embedding_bag(features[0], weights[:, None], features[1], mode="sum")[:, 0] + bias

    def _features(self, pairs: Iterable[Pair]) -> tuple[Tensor, Tensor]:
        """Places of all features, and where those of each pair begin."""
        listed = [sorted({_bucket(feature, len(self.weights)) for feature in _words(*pair)}) for pair in pairs]
        begins = [0, *accumulate(len(places) for places in listed)][:-1]
        return torch.tensor([place for places in listed for place in places]), torch.tensor(begins)


def _words(context: str, text: str) -> list[str]:
    first, second = (re.findall(r"\w+", part.lower()) for part in (context, text))
    return [*(f"c {a}" for a in first), *(f"t {b}" for b in second), *(f"{a} {b}" for a in first for b in second)]


def _bucket(feature: str, size: int) -> int:
    return zlib.crc32(feature.encode()) % size
