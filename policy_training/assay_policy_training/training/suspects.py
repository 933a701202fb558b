"""Rollouts that two rewards disagree about: candidates for human review.

Covers: of a step's groups, the pair of responses whose order the reward trained on and a held-out one see most
differently. One of the two is wrong, and an annotator can decide which. Leaves out: the queue
(`assay_pipelines.annotation`), the scoring (`held_out_reward`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from torch import Tensor

from assay import ids
from assay_policy_training.core.batch import RolloutBatch


@dataclass(frozen=True, order=True)
class _Pair:
    """Rows `a` and `b` of one group: the reward prefers a, the held-out one b. `doubt` grows with both differences."""

    doubt: float
    a: int
    b: int


def suspects(batch: RolloutBatch, held: Tensor, *, step: int, most: int) -> list[dict[str, Any]]:
    """At most `most` records, of different groups, the most doubtful first. `held` [B] float64, NaN = missing.

    `doubt` is the product of the two differences, each in deviations over the batch, plus the uncertainty (a standard
    deviation) that the model reports for its score of the preferred response.
    """
    reward = batch.scored_reward
    scales = _deviation(reward), _deviation(held)
    groups: dict[str, list[int]] = {}
    for row, uid in enumerate(batch.uid):
        if not (math.isnan(float(held[row])) or math.isnan(float(reward[row]))):
            groups.setdefault(uid, []).append(row)
    worst = [max(pairs) for rows in groups.values() if (pairs := list(_disagreements(batch, held, rows, scales)))]
    return [_record(batch, held, pair, step) for pair in sorted(worst, reverse=True)[:most]]


def _disagreements(batch: RolloutBatch, held: Tensor, rows: list[int], scales: tuple[float, float]) -> Iterator[_Pair]:
    for a, b in permutations(rows, 2):
        ahead = float(batch.scored_reward[a] - batch.scored_reward[b]) / scales[0]
        behind = float(held[b] - held[a]) / scales[1]
        if ahead > 0 and behind > 0 and batch.responses[a] != batch.responses[b]:
            yield _Pair(ahead * behind + _uncertainty(batch, a), a, b)


def _record(batch: RolloutBatch, held: Tensor, pair: _Pair, step: int) -> dict[str, Any]:
    prompt, rows = ids.prompt_id(batch.prompts[pair.a]), (pair.a, pair.b)
    return {
        "step": step,
        "uid": batch.uid[pair.a],
        "prompt": [message.to_dict() for message in batch.prompts[pair.a]],
        "responses": [batch.responses[row] for row in rows],
        "response_ids": [ids.response_id(prompt, batch.responses[row]) for row in rows],
        "rewards": [float(batch.scored_reward[row]) for row in rows],
        "held_out": [float(held[row]) for row in rows],
        "doubt": pair.doubt,
    }


def _deviation(values: Tensor) -> float:
    present = values[~values.isnan()]
    return (float(present.std()) if len(present) > 1 else 0.0) or 1.0


def _uncertainty(batch: RolloutBatch, row: int) -> float:
    """The largest standard deviation that a model reports for its score, 0 where none does."""
    stated = [score.uncertainty for score in batch.scores[row].values()] if batch.scores else []
    return max((value for value in stated if value is not None), default=0.0)
