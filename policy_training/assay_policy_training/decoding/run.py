"""Decoding of many prompts: responses stored as they come, resumed where they stopped, and what is measured on them.

Covers: a file of JSON Lines with a row for each response, found again by what determines it; rows whose reward failed,
which another run decodes again; the summary (reward, KL, length, tokens generated, coverage) and the curve of best-of-m
from the n samples of one best-of-n. Leaves out: the decoders.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from assay.ids import prompt_id
from assay.statistics.best_of_n import expected_best, kl_best_of, kl_with_ties
from assay.statistics.intervals import Interval, bounds, clustered_mean, share_interval
from assay.statistics.pass_at_k import powers_to
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import group_seeds
from assay_policy_training.core.stored_rows import stored_rows
from assay_policy_training.decoding.kind import DecodedResponse, Decoder, DecodingInputs
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.rollouts.functions.source import FunctionReward
from assay_policy_training.rollouts.prefix_values import ProverReward
from assay_policy_training.rollouts.rewards import ModelReward, ProcessReward, verifier_accuracy


def decode(
    decoder: Decoder,
    items: Sequence[PromptItem],
    inputs: DecodingInputs,
    *,
    samples: int = 1,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> list[dict[str, Any]]:
    """`samples` rows for each prompt; only those without a reward in the stored file are decoded.

    Raises BadInputError where another process is decoding the same.
    """
    decode_prompts = decoder.open(inputs)
    name = f"{type(decoder).__module__}:{type(decoder).__qualname__}"
    content = [
        inputs.policy.version,
        inputs.policy.renderer.template_hash,
        inputs.reward_key,
        inputs.seed,
        samples,
        asdict(inputs.sampling),
        name,
    ]
    content += [code_digest(decoder), repr(decoder), inputs.facts, *[item.to_dict() for item in items]]
    key = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:24]
    repeated = [item for item in items for _ in range(samples)]
    seeds = group_seeds(inputs.seed, len(repeated))
    path = inputs.folder / f"{key}.jsonl"
    with stored_rows(path, keep=lambda row: row["reward"] is not None) as (rewarded, log):
        stored = {row["row"]: row for row in rewarded}
        on_rows(len(stored))
        missing = [row for row in range(len(repeated)) if row not in stored]
        at_once = max(1, inputs.sampling.rows_at_once // decoder.rows_a_response)
        for start in range(0, len(missing), at_once):
            part = missing[start : start + at_once]
            rows = [repeated[row] for row in part]
            decoded = decode_prompts(rows, [seeds[row] for row in part])
            verdicts = verifier_accuracy(rows, [response.chosen.text for response in decoded]).tolist()
            for row, item, response, verdict in zip(part, rows, decoded, verdicts, strict=True):
                stored[row] = {"row": row, **record(item, response), "verified": _number(verdict)}
                log.add(stored[row])
            on_rows(len(part))
    return [stored[row] for row in range(len(repeated))]


def reward_key(references: Sequence[str], rewards: Sequence[RewardSource]) -> str:
    """Identity of rewards: how they were named, versions of their models, contents of the files they come from."""
    parts: list[str] = []
    for reference, source in zip(references, rewards, strict=True):
        version = source.scorer.info.version if isinstance(source, ModelReward | ProcessReward) else ""
        version = source.estimator.policy.version if isinstance(source, ProverReward) else version
        parts += [reference, version or code_digest(source.function if isinstance(source, FunctionReward) else source)]
    return json.dumps(parts)


def code_digest(thing: Any) -> str:
    """SHA-256 of the file that has the code of a function, or of an object's class."""
    function = inspect.unwrap(getattr(thing, "func", thing))  # func: of a functools.partial
    file = inspect.getsourcefile(function if inspect.isroutine(function) else type(function))
    return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def record(item: PromptItem, response: DecodedResponse) -> dict[str, Any]:
    """A response's row, its fields named as in `rollouts.jsonl`."""
    chosen = response.chosen
    return {
        "prompt_id": prompt_id(item.prompt),
        "prompt": [message.to_dict() for message in item.prompt],
        "response": chosen.text,
        "tokens": chosen.tokens,
        "finished": chosen.finished,
        "reward": _number(chosen.reward),
        **chosen.record,
        "kl": response.kl,
        "kl_kind": response.kl_kind,
        "generated_tokens": response.generated,
        "scored": response.scored,
        "candidates": [_number(reward) for reward in response.candidates],
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over responses; of reward, KL by token and verdicts with 95 % intervals by prompt (None: undetermined).
    Reward and KL are those of the rows that have a reward; `rewards_missing` counts the others."""
    rewarded = [row for row in rows if row["reward"] is not None]
    kl = _mean(rewarded, "kl")
    kind = rows[0]["kl_kind"] if rows else None
    return {
        "prompts": len({row["prompt_id"] for row in rows}),
        "responses": len(rows),
        "rewards_missing": len(rows) - len(rewarded),
        "reward": _mean(rewarded, "reward"),
        "verified": _mean([row for row in rows if row["verified"] is not None], "verified", share_interval),
        "kl": kl if kind == "by_token" else kl | {"low": None, "high": None},
        "kl_kind": kind,
        **{name: _mean(rows, name)["mean"] for name in ("tokens", "finished", "generated_tokens", "scored")},
    }


def best_of_m(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For m = 1, 2, 4, ... what best-of-m would get, without bias from all candidates, beside its KL: the bound, and
    the estimate that counts ties. A row counts where m of its candidates have a reward."""
    lists = [(row["prompt_id"], [reward for reward in row["candidates"] if reward is not None]) for row in rows]
    curve: list[dict[str, Any]] = []
    for m in powers_to(max((len(rewards) for _, rewards in lists), default=0)):
        used = [(prompt, rewards) for prompt, rewards in lists if len(rewards) >= m]
        points = [
            {"prompt_id": prompt, "reward": float(expected_best(rewards, rewards)[m - 1])} for prompt, rewards in used
        ]
        ties = float(np.mean([kl_with_ties(rewards, m) for _, rewards in used]))
        curve.append({"m": m, **_mean(points, "reward"), "kl_bound": kl_best_of(m), "kl_with_ties": ties})
        curve[-1] |= {"rows": len(used), "left_out": len(rows) - len(used)}
    return curve


def _mean(
    rows: Sequence[Mapping[str, Any]], name: str, interval_of: Callable[..., Interval | None] = clustered_mean
) -> dict[str, float | None]:
    values = [float(row[name]) for row in rows]
    interval = interval_of(values, [row["prompt_id"] for row in rows]) if values else None
    return dict(
        zip(("mean", "low", "high"), (sum(values) / len(values) if values else None, *bounds(interval)), strict=True)
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
