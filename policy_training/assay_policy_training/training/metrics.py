"""The numbers and records of one step: what metrics.jsonl and rollouts.jsonl hold.

Covers: statistics of rewards, lengths, KL and clipping, one JSON record per rollout. A number that does not exist in
a step (no verifier, no reference, no update) is left out of the step, never written as 0. Leaves out: writing them
(`assay.runs.json_log`), plotting them (the web part).
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from statistics import fmean
from typing import Any

from torch import Tensor

from assay import ids
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import EPISODE, POLICY
from assay_policy_training.plugins.environments.record import episode_measures
from assay_policy_training.plugins.shaping.repetition import repeated_share


def rollout_measures(batch: RolloutBatch, keep: Tensor) -> dict[str, float]:
    """Statistics of all rollouts of a step, before rows were dropped; `kept` [B] bool, the rows trained on."""
    measures: dict[str, float] = {
        "rollouts": len(batch),
        "rollouts_trained": int(keep.sum()),
        "rewards_missing": int((~batch.counted).sum()),
        "length_mean": float(batch.lengths.double().mean()),
        "length_max": int(batch.lengths.max()),
        **{f"length_p{q}": float(batch.lengths.double().quantile(q / 100)) for q in (90, 99)},
        "truncated_share": float(batch.truncated.double().mean()),
        "repeated_trigrams": fmean(
            repeated_share(tokens[own].tolist(), 3) for tokens, own in zip(batch.tokens, batch.mask, strict=True)
        ),
    }
    if stated := [s.uncertainty for row in batch.scores for s in row.values() if s.uncertainty is not None]:
        measures["reward_uncertainty_mean"] = fmean(stated)
    measures |= episode_measures(batch.items)
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
    batch: RolloutBatch, keep: Tensor, trained: RolloutBatch | None, *, step: int, policy: str
) -> Iterator[dict[str, Any]]:
    """One JSON-ready record per rollout. `trained`: its rows that `kept` [B] names, in order, with their advantages.
    `policy`: the base's version; the number of updates is added to it. `advantage`: of the row's first own token. A
    rollout that a later step continues is written then."""
    lengths = batch.lengths
    advantages: dict[int, float | None] = {}
    if trained is not None and trained.adv is not None:
        starts = trained.mask.int().argmax(1)
        for index, row in enumerate(keep.nonzero().squeeze(1).tolist()):
            advantages[row] = _number(trained.adv[index, starts[index]])
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
            **_token_versions(batch, row),
            **_generation_context(batch, row),
            **_episode(batch, row),
            "source": batch.source[row] if batch.source else POLICY,
            "advantage": advantages.get(row),
            "trained": bool(keep[row]),
        }


def _token_versions(batch: RolloutBatch, row: int) -> dict[str, Any]:
    """Where weights changed under way: [updates of the weights, tokens they generated] in order."""
    versions = batch.token_version[row][batch.mask[row]].tolist()
    runs = [[version, len(list(tokens))] for version, tokens in groupby(versions)]
    return {"weights_versions": runs} if len(runs) > 1 else {}


def _generation_context(batch: RolloutBatch, row: int) -> dict[str, Any]:
    """What the policy read, where that is another context than the prompt, such as one with a hint."""
    context = batch.items[row].generation_context if batch.items else batch.prompts[row]
    return {} if context == batch.prompts[row] else {"generated_from": [message.to_dict() for message in context]}


def _episode(batch: RolloutBatch, row: int) -> dict[str, Any]:
    """Its task, of which several may have one prompt, and the record of what happened in it, turn by turn."""
    item = batch.items[row] if batch.items else None
    return {"task_id": item.task_id, EPISODE: item.meta[EPISODE]} if item and EPISODE in item.meta else {}


def _number(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
