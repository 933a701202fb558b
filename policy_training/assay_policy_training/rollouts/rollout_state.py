"""Requests and rollouts in a checkpoint: nested containers of tensors, texts and numbers.

Covers: rollouts with the rewards they have so far. Leaves out: what a batch has only in training.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from torch import Tensor

from assay.score import ScoreFailure, score_from_dict
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import item_from_dict
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.rollouts.generate import RolloutRequest, Rollouts

_TEXTS = ("uid", "responses", "source")


def request_to_dict(request: RolloutRequest) -> dict[str, Any]:
    return {
        "step": request.step,
        "items": [item.to_dict() for item in request.items],
        "uids": list(request.uids),
        "seeds": list(request.seeds),
        "sampling": asdict(request.sampling),
    }


def request_from_dict(payload: Mapping[str, Any]) -> RolloutRequest:
    items = tuple(item_from_dict(item) for item in payload["items"])
    sampling = Sampling(**payload["sampling"])
    return RolloutRequest(int(payload["step"]), items, tuple(payload["uids"]), tuple(payload["seeds"]), sampling)


def rollouts_to_dict(rollouts: Rollouts) -> dict[str, Any]:
    batch = rollouts.batch
    tensors = {f.name: value for f in fields(batch) if isinstance(value := getattr(batch, f.name), Tensor)}
    distinct = {id(item): item for item in batch.items}  # a group's rows share one
    numbers = {key: number for number, key in enumerate(distinct)}
    return {
        "tensors": tensors,
        **{name: list(getattr(batch, name)) for name in _TEXTS},
        "items": [item.to_dict() for item in distinct.values()],
        "item": [numbers[id(item)] for item in batch.items],
        "rewards": [None if rewards is None else _rewards_to_dict(rewards) for rewards in rollouts.rewards],
    }


def rollouts_from_dict(payload: Mapping[str, Any]) -> Rollouts:
    distinct = [item_from_dict(item) for item in payload["items"]]
    items = tuple(distinct[number] for number in payload["item"])
    texts: dict[str, Any] = {name: tuple(payload[name]) for name in _TEXTS}
    prompts = tuple(item.prompt for item in items)
    batch = RolloutBatch(**payload["tensors"], **texts, items=items, prompts=prompts)
    rewards = (None if entry is None else _rewards_from_dict(entry) for entry in payload["rewards"])
    return Rollouts(batch, tuple(rewards))


def _rewards_to_dict(rewards: Rewards) -> dict[str, Any]:
    return {
        "parts": dict(rewards.parts),
        "failures": [[failure.to_dict() for failure in row] for row in rewards.failures],
        "scores": [{name: score.to_dict() for name, score in row.items()} for row in rewards.scores],
    }


def _rewards_from_dict(payload: Mapping[str, Any]) -> Rewards:
    failures = [tuple(score_from_dict(entry) for entry in row) for row in payload["failures"]]
    scores = [{name: score_from_dict(entry) for name, entry in row.items()} for row in payload["scores"]]
    assert all(isinstance(failure, ScoreFailure) for row in failures for failure in row)
    return Rewards(payload["parts"], failures, scores)  # type: ignore[arg-type]
