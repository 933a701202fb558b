"""Means over tokens and seconds per stage, accumulated during a step.

What is added stays on its device until all of it is read at once. Leaves out: which numbers a step reports
(`training.metrics`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch
from torch import Tensor

from assay.models.devices import read_values
from assay_policy_training.core.ratios import kl_estimate


def is_kl(metric: str) -> bool:
    """Whether a step's metric of this name is a distance to the reference, so that it needs one."""
    return metric.endswith(("kl_k1", "kl_k3"))


class TokenMeans:
    """Means over tokens, gathered over micro-batches."""

    def __init__(self) -> None:
        self._unread: list[tuple[str, bool, Tensor]] = []  #: sum (or largest, where True) and number of tokens
        self._sums: dict[str, float] = defaultdict(float)
        self._tokens: dict[str, int] = defaultdict(int)
        self._largest: dict[str, float] = {}
        self._numbers: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, values: Tensor, mask: Tensor) -> None:
        """`values` and `mask` of one shape."""
        total = torch.where(mask, values.detach().double(), 0.0).sum()
        self._unread.append((name, False, torch.stack([total, mask.sum().to(total)])))

    def add_largest(self, name: str, values: Tensor, mask: Tensor) -> None:
        """The largest absolute value; nothing where no token is in the mask."""
        largest = torch.where(mask, values.detach().double().abs(), 0.0).amax()
        self._unread.append((name, True, torch.stack([largest, mask.sum().to(largest)])))

    def add_number(self, name: str, value: float) -> None:
        """A number of a whole minibatch; their plain mean is reported."""
        self._numbers[name].append(value)

    def add_kl(self, logp: Tensor, logp_ref: Tensor, mask: Tensor) -> None:
        """k1 and k3 to the reference: both have the true KL as their mean."""
        for kind in ("k1", "k3"):
            self.add(f"kl_{kind}", kl_estimate(kind, logp.detach(), logp_ref), mask)

    def read(self) -> "TokenMeans":
        """Itself, with the values of all that was added: what another process can be given."""
        pairs = read_values([pair for _, _, pair in self._unread])
        for (name, is_largest, _), (value, tokens) in zip(self._unread, pairs, strict=True):
            if not is_largest:
                self._sums[name] += value
                self._tokens[name] += int(tokens)
            elif tokens:
                self._largest[name] = max(self._largest.get(name, 0.0), value)
        self._unread = []
        return self

    @classmethod
    def joined(cls, parts: "Sequence[TokenMeans]") -> "TokenMeans":
        """Those of several processes, each of which saw other tokens and the same minibatches."""
        total_means = cls()
        for part in parts:
            for name, total in part.read()._sums.items():
                total_means._sums[name] += total
                total_means._tokens[name] += part._tokens[name]
            for name, value in part._largest.items():
                total_means._largest[name] = max(total_means._largest.get(name, 0.0), value)
        total_means._numbers = parts[0]._numbers
        return total_means

    def to_dict(self) -> dict[str, float]:
        means = {name: total / self._tokens[name] for name, total in self.read()._sums.items() if self._tokens[name]}
        numbers = {name: sum(values) / len(values) for name, values in self._numbers.items()}
        return {**means, **numbers, **self._largest}


class Stopwatch:
    """Seconds per named stage of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = perf_counter()
        yield
        self.seconds[stage] += perf_counter() - started

    def to_dict(self) -> dict[str, float]:
        return {f"seconds_{stage}": seconds for stage, seconds in self.seconds.items()}
