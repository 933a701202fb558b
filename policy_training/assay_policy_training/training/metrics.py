"""The numbers and records of one step: what metrics.jsonl and rollouts.jsonl hold.

Covers: statistics of rewards, lengths, KL and clipping, one JSON record per rollout. A number that does not exist in
a step (no verifier, no reference, no update) is left out of the step, never written as 0. Leaves out: writing them
(`checkpoint.JsonLog`), drawing them (the web part).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from torch import Tensor

from assay import ids
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import POLICY
from assay_policy_training.plugins.auxiliary.kl import estimate


class TokenMeans:
    """Means over tokens, gathered over micro-batches."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._tokens: dict[str, int] = defaultdict(int)
        self._largest: dict[str, float] = {}
        self._numbers: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, values: Tensor, mask: Tensor) -> None:
        """`values` and `mask` of one shape."""
        self._sums[name] += float(values.detach()[mask].double().sum())
        self._tokens[name] += int(mask.sum())

    def add_largest(self, name: str, values: Tensor, mask: Tensor) -> None:
        if mask.any():
            self._largest[name] = max(self._largest.get(name, 0.0), float(values.detach()[mask].abs().max()))

    def add_number(self, name: str, value: float) -> None:
        """A number of a whole minibatch; their plain mean is reported."""
        self._numbers[name].append(value)

    def add_kl(self, logp: Tensor, logp_ref: Tensor, mask: Tensor) -> None:
        """k1 and k3 to the reference: both have the true KL as their mean."""
        for kind in ("k1", "k3"):
            self.add(f"kl_{kind}", estimate(kind, logp.detach(), logp_ref), mask)

    @classmethod
    def joined(cls, parts: Sequence[TokenMeans]) -> TokenMeans:
        """Those of several processes, each of which saw other tokens and the same minibatches."""
        made = cls()
        for part in parts:
            for name, total in part._sums.items():
                made._sums[name] += total
                made._tokens[name] += part._tokens[name]
            for name, value in part._largest.items():
                made._largest[name] = max(made._largest.get(name, 0.0), value)
        made._numbers = parts[0]._numbers
        return made

    def to_dict(self) -> dict[str, float]:
        means = {name: total / self._tokens[name] for name, total in self._sums.items() if self._tokens[name]}
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


def rollout_measures(batch: RolloutBatch, kept: Tensor) -> dict[str, float]:
    """Statistics of all rollouts of a step, before rows were dropped; `kept` [B] bool, the rows trained on."""
    measures: dict[str, float] = {
        "rollouts": len(batch),
        "rollouts_trained": int(kept.sum()),
        "rewards_missing": int((~batch.counted).sum()),
        "length_mean": float(batch.lengths.double().mean()),
        "length_max": int(batch.lengths.max()),
        "truncated_share": float(batch.truncated.double().mean()),
    }
    if batch.unfinished is not None:
        measures["rollouts_unfinished"] = int(batch.unfinished.sum())
    measures |= _spread("reward", batch.scored_reward)
    for name, part in batch.r_parts.items():
        measures |= _spread(f"reward_{name}", part)
    return measures


def _spread(name: str, values: Tensor) -> dict[str, float]:
    present = values[~values.isnan()]
    if not len(present):
        return {}
    return {f"{name}_mean": float(present.mean()), f"{name}_std": float(present.std(correction=0))}


def reward_versions(batch: RolloutBatch) -> dict[str, str]:
    """Part -> version of the model that gave it; several versions in one batch are joined by a comma."""
    seen: dict[str, set[str]] = defaultdict(set)
    for row in batch.scores:
        for name, score in row.items():
            seen[name].add(score.version)
    return {name: ",".join(sorted(versions)) for name, versions in seen.items()}


def rollout_records(
    batch: RolloutBatch, kept: Tensor, trained: RolloutBatch | None, *, step: int, policy: str
) -> Iterator[dict[str, Any]]:
    """One JSON-ready record per rollout. `trained`: its rows that `kept` [B] names, in order, with their advantages.
    `policy`: the base's version; the number of updates is added to it. `advantage`: of the row's first own token. A
    rollout that goes on in a later step is written then."""
    lengths = batch.lengths
    advantages: dict[int, float | None] = {}
    if trained is not None and trained.adv is not None:
        starts = trained.mask.int().argmax(1)
        for place, row in enumerate(kept.nonzero().squeeze(1).tolist()):
            advantages[row] = _number(trained.adv[place, starts[place]])
    for row in range(len(batch)):
        if batch.unfinished is not None and batch.unfinished[row]:
            continue
        prompt = ids.prompt_id(batch.prompts[row])
        yield {
            "step": step,
            "uid": batch.uid[row],
            "prompt_id": prompt,
            "response_id": ids.response_id(prompt, batch.responses[row]),
            "prompt": [message.to_dict() for message in batch.prompts[row]],
            "response": batch.responses[row],
            "tokens": int(lengths[row]),
            "finished": bool(batch.finished[row]),
            "truncated": bool(batch.truncated[row]),
            "reward": _number(batch.scored_reward[row]),
            "parts": {name: _number(part[row]) for name, part in batch.r_parts.items()},
            "verified": None if batch.acc is None else _number(batch.acc[row]),
            "failures": [failure.to_dict()["error"] for failure in (batch.failures[row] if batch.failures else ())],
            "scores": {name: score.to_dict() for name, score in batch.scores[row].items()} if batch.scores else {},
            "weights_version": f"{policy}+{int(batch.version[row])}",
            "source": batch.source[row] if batch.source else POLICY,
            "advantage": advantages.get(row),
            "trained": bool(kept[row]),
        }


def _number(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
