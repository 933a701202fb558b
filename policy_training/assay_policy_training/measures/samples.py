"""Samples of a policy with their verdicts: generated from prompts, or the recorded rollouts of a run.

Covers: generation that resumes prompt by prompt and is stored by its content, so that every measure of a policy reads
the same file; verdicts by constraints, or by a reward above a threshold; rows of `rollouts.jsonl`. A stored file is
also one of recorded responses (`core.prompt`). Leaves out: samplers other than transformers'.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.data.json_lines import Lines, parse_object
from assay.errors import BadInputError
from assay.ids import prompt_id
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, group_seeds
from assay_policy_training.core.stored_rows import stored_rows
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.rollouts.rewards import composed, gather_rewards, verifier_accuracy


@dataclass(frozen=True)
class PolicySample:
    """One response. `passed` and `reward`: None = no verdict, which is never counted as wrong."""

    prompt_id: str
    response: str
    passed: bool | None
    reward: float | None = None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    step: int | None = None  #: of the training that it was generated in
    episode: Mapping[str, Any] | None = None  #: the record of its environment
    task_id: str = ""  #: of an episode: tasks may have one prompt

    @classmethod
    def from_record(cls, row: Mapping[str, Any], pass_above: float | None) -> "PolicySample":
        """Of a row of `rollouts.jsonl`. Without constraints a reward above `pass_above` passes."""
        verified, reward = row.get("verified"), row.get("reward")
        passed = None if verified is None else bool(verified)
        if passed is None and pass_above is not None and reward is not None:
            passed = reward > pass_above
        parts, episode = row.get("parts") or {}, row.get("episode")
        task = row.get("task_id") or row["prompt_id"]
        return cls(row["prompt_id"], row["response"], passed, reward, parts, row.get("step"), episode, task)


def read_samples(path: Path, pass_above: float | None) -> list[PolicySample]:
    """The rows of a `rollouts.jsonl`. Raises BadInputError naming the row that is none."""
    samples = []
    for row, line in Lines(path):
        record = parse_object(line)
        if not isinstance(record.get("response"), str) or not isinstance(record.get("prompt_id"), str):
            raise BadInputError("needs prompt_id and response, as in rollouts.jsonl", file=path, row=row)
        samples.append(PolicySample.from_record(record, pass_above))
    return samples


@dataclass(frozen=True)
class Generation:
    """What determines the responses of a policy, beside its weights."""

    samples: int
    seed: int
    sampling: Sampling

    def key(self, policy: Policy, items: Sequence[PromptItem]) -> str:
        """Of the stored file: equal for equal weights, prompts, their rendering, and settings."""
        content = [
            policy.version,
            policy.renderer.template_hash,
            self.samples,
            self.seed,
            asdict(self.sampling),
            [item.to_dict() for item in items],
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def generate(
    policy: Policy,
    items: Sequence[PromptItem],
    generation: Generation,
    folder: Path,
    *,
    on_prompts: Callable[[int], None] = lambda prompts: None,
) -> tuple[Path, list[list[str]]]:
    """The stored file, and the responses of each prompt; only those that are not stored yet are generated.

    Raises BadInputError where another process is generating the same.
    """
    path = folder / f"{generation.key(policy, items)}.jsonl"
    with stored_rows(path) as (rows, log):
        on_prompts(len(rows))
        seeds = group_seeds(generation.seed, len(items))
        sampler = TransformersSampler(policy, generation.sampling)
        at_once = max(1, generation.sampling.rows_at_once // generation.samples)
        for start in range(len(rows), len(items), at_once):
            part = items[start : start + at_once]
            batch = sampler.rollout(part, generation.samples, seed=seeds[start : start + at_once], version=0)
            responses = _grouped(batch.responses, generation.samples)
            for item, texts in zip(part, responses, strict=True):
                prompt = [message.to_dict() for message in item.prompt]
                rows.append({"prompt": prompt, "responses": [{"text": text} for text in texts]})
                log.add(rows[-1])
            on_prompts(len(part))
    return path, [[response["text"] for response in row["responses"]] for row in rows]


def judged(
    items: Sequence[PromptItem],
    responses: Sequence[Sequence[str]],
    rewards: Sequence[RewardSource],
    pass_above: float | None,
) -> Iterator[dict[str, Any]]:
    """A record for each response, with the fields that `rollouts.jsonl` gives them."""
    repeated = [item for item, texts in zip(items, responses, strict=True) for _ in texts]
    texts = [text for listed in responses for text in listed]
    answers = gather_rewards(rewards, repeated, texts)
    reward = composed(Composition(), answers).tolist() if answers.parts else [math.nan] * len(texts)
    verified = verifier_accuracy(repeated, texts).tolist()
    for row, (item, text) in enumerate(zip(repeated, texts, strict=True)):
        yield {
            "prompt_id": prompt_id(item.prompt),
            "prompt": [message.to_dict() for message in item.prompt],
            "response": text,
            "verified": number(verified[row]),
            "reward": number(reward[row]),
            "parts": {name: number(float(part[row])) for name, part in answers.parts.items()},
            "failures": [failure.to_dict()["error"] for failure in answers.failures[row]] if answers.parts else [],
        }


def by_prompt(samples: Iterable[PolicySample]) -> dict[str, list[PolicySample]]:
    """Prompt -> its samples, in their order."""
    groups: dict[str, list[PolicySample]] = defaultdict(list)
    for sample in samples:
        groups[sample.prompt_id].append(sample)
    return dict(groups)


def number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _grouped(texts: Sequence[str], size: int) -> list[list[str]]:
    return [list(texts[start : start + size]) for start in range(0, len(texts), size)]
