"""Pairs of a policy run's rollouts to ask people about, the most doubtful first: of a prompt, in one step.

Covers: the doubt of a pair by what `rollouts.jsonl` holds; episodes as the conversations that they are. Leaves out:
pairs that a watch set aside (`assay_policy_training.training.held_out_reward`), the queue (`annotation.rollouts`).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby
from pathlib import Path
from statistics import pstdev
from typing import Any

from assay.conversation.message import response_form
from assay.data.json_lines import Lines, parse_object
from assay_policy_training.plugins.environments.conversation import recorded_conversation

Row = Mapping[str, Any]


def uncertain_pairs(path: Path) -> Iterator[dict[str, Any]]:
    """Of each group of each step the most doubtful pair, as a watch writes it, without rewards held out; what has the
    higher reward first. Rollouts without a reward, failed episodes among them, are in none.

    The doubt is exp(-difference of the rewards / s), where s is the uncertainty that the reward model states of the
    two, else the deviation of the step's rewards; and for each part of the reward that orders the two the other way,
    its difference in deviations.
    """
    for step, rows in groupby((parse_object(line) for _, line in Lines(path)), key=lambda row: row["step"]):
        rewarded = [row for row in rows if row["reward"] is not None]
        scale = _deviation([row["reward"] for row in rewarded])
        names = {name for row in rewarded for name in row["parts"]}
        part_scales = {name: _deviation([row["parts"].get(name) for row in rewarded]) for name in names}
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in rewarded:
            groups[row["uid"]].append(row)
        for uid, members in groups.items():
            pairs = [
                (_doubt(a, b, scale, part_scales), a, b)
                for a, b in combinations(members, 2)
                if a["response"] != b["response"]
            ]
            for doubt, a, b in sorted(pairs, key=lambda pair: -pair[0]):
                better, worse = (a, b) if a["reward"] >= b["reward"] else (b, a)
                if (record := _record(better, worse)) is not None:
                    rewards = [better["reward"], worse["reward"]]
                    yield {"step": step, "uid": uid, **record, "rewards": rewards, "doubt": doubt}
                    break


def _doubt(a: Row, b: Row, scale: float, part_scales: Mapping[str, float]) -> float:
    difference = a["reward"] - b["reward"]
    doubt = math.exp(-abs(difference) / (math.hypot(_uncertainty(a), _uncertainty(b)) or scale))
    for name, part_scale in part_scales.items():
        one, other = a["parts"].get(name), b["parts"].get(name)
        if one is not None and other is not None and (one - other) * difference < 0:
            doubt += abs(one - other) / part_scale
    return doubt


def _record(better: Row, worse: Row) -> dict[str, Any] | None:
    """The two with their prompt; None where they read different ones, or said nothing."""
    if "episode" not in better:
        return {"prompt": better["prompt"], "responses": [better["response"], worse["response"]]}
    conversations = [recorded_conversation(row) for row in (better, worse)]
    if None in conversations or conversations[0].prompt != conversations[1].prompt:  # type: ignore[union-attr]
        return None
    forms = [response_form(one.response) for one in conversations if one is not None]
    prompt = [message.to_dict() for message in conversations[0].prompt]  # type: ignore[union-attr]
    return {"prompt": prompt, "responses": forms} if forms[0] != forms[1] else None


def _deviation(numbers: Sequence[float | None]) -> float:
    present = [number for number in numbers if number is not None]
    return (pstdev(present) if present else 0.0) or 1.0


def _uncertainty(row: Row) -> float:
    """The largest that a model states of its score, 0 where none does."""
    return max((score.get("uncertainty") or 0.0 for score in row["scores"].values()), default=0.0)
