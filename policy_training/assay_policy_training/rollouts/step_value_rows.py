"""Rows of prompts whose responses get Monte-Carlo step values, and what trainings read of them.

Covers: the responses a row holds (texts are cut into steps), those sampled for rows without any, rows stored as they
come so that an interrupted command resumes, rows of labelled steps. Leaves out: the values (`prefix_values`).
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.ids import prompt_id
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import RESPONSES, PromptItem, checked_record
from assay_policy_training.core.sampling import derived_seed
from assay_policy_training.core.steps import split_steps
from assay_policy_training.core.stored_rows import stored_rows
from assay_policy_training.rollouts.prefix_values import PrefixEstimator

PROMPTS_AT_ONCE = 8


def valued_rows(
    items: Sequence[PromptItem],
    estimator: PrefixEstimator,
    reward_key: str,
    folder: Path,
    *,
    responses: int,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each prompt, as `assay rl` reads it, its `responses` with `steps`, `step_values` (before the first step
    and after each), `tried`, `correct` and `reward`; and why responses have none. `responses`: sampled where a row has
    none. `reward_key`: identity of the rewards. Raises BadInputError for a wrong record, and where another process does
    the same."""
    policy, settings = estimator.policy, estimator.settings
    content = [policy.version, policy.renderer.template_hash, asdict(settings), reward_key, responses]
    key = hashlib.sha256(
        json.dumps([*content, *[prompt.to_dict() for prompt in items]], default=str).encode()
    ).hexdigest()
    with stored_rows(folder / f"{key[:24]}.jsonl", keep=lambda row: not row["failures"]) as (rows, log):
        stored = {row["row"]: row for row in rows}
        on_rows(len(stored))
        missing = [number for number in range(len(items)) if number not in stored]
        for start in range(0, len(missing), PROMPTS_AT_ONCE):
            numbers = missing[start : start + PROMPTS_AT_ONCE]
            for number, row in zip(numbers, _valued([items[n] for n in numbers], estimator, responses), strict=True):
                stored[number] = {"row": number, **row}
                log.add(stored[number])
            on_rows(len(numbers))
    in_order = [stored[number] for number in range(len(items))]
    return [row["content"] for row in in_order], [text for row in in_order for text in row["failures"]]


def label_rows(rows: Sequence[dict[str, Any]], separator: str) -> list[dict[str, Any]]:
    """Of valued rows, those that `assay train steps` reads: the counts behind a step's value, else the value itself."""
    return [
        {
            "prompt": row["prompt"],
            "steps": [step.removesuffix(separator) for step in response["steps"]],
            "labels": [
                {"correct": correct, "tried": tried} if correct is not None else estimate
                for estimate, tried, correct in list(
                    zip(response["step_values"], response["tried"], response["correct"], strict=True)
                )[1:]
            ],
        }
        for row in rows
        for response in row[RESPONSES]
    ]


def _valued(items: Sequence[PromptItem], estimator: PrefixEstimator, responses: int) -> list[dict[str, Any]]:
    separator = estimator.settings.separator
    steps = [
        [list(record.get("steps") or split_steps(record["text"], separator)) for record in _records(prompt)]
        for prompt in items
    ]
    bare = [number for number, of_item in enumerate(steps) if not of_item]
    if bare:
        seeds = [derived_seed(estimator.settings.seed, "responses", prompt_id(items[n].prompt)) for n in bare]
        batch = estimator.sampler.rollout([items[n] for n in bare], responses, seed=seeds, version=0)
        for order, number in enumerate(bare):
            texts = batch.responses[order * responses : (order + 1) * responses]
            steps[number] = [split_steps(text, separator) for text in texts]
    flat = [(prompt, row) for prompt, of_item in zip(items, steps, strict=True) for row in of_item]
    values = iter(estimator.values([prompt for prompt, _ in flat], [row for _, row in flat]))
    rows = []
    for prompt, of_item in zip(items, steps, strict=True):
        listed: list[dict[str, Any]] = []
        failures: list[str] = []
        for row in of_item:
            estimates = next(values)
            if isinstance(estimates, ScoreFailure):
                failures.append(f"{prompt.prompt[-1].text[:40]!r}: {estimates.message}")
                continue
            listed.append(
                {
                    "steps": row,
                    "step_values": [estimate.value for estimate in estimates],
                    "tried": [estimate.tried for estimate in estimates],
                    "correct": [estimate.correct for estimate in estimates],
                    "reward": estimates[-1].value,
                }
            )
        stated = {"prompt": [message.to_dict() for message in prompt.prompt], **prompt.meta}
        if prompt.constraints:
            stated["constraints"] = [constraint.to_dict() for constraint in prompt.constraints]
        rows.append({"content": {**stated, RESPONSES: listed}, "failures": failures})
    return rows


def _records(prompt: PromptItem) -> list[dict[str, Any]]:
    return [checked_record(record, index) for index, record in enumerate(prompt.meta.get(RESPONSES) or ())]
