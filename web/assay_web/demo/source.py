"""The demo's raw material: prompts with checkable constraints, sampled responses, labels as a noisy source gives them.

Covers: sampling with the demo's language model, forming comparisons, flipping a stated share of labels, and the
blemishes of a real file (repeated rows, an empty response, identical sides, a broken line), each counted. What was
injected is returned beside the file and is not in it: the pipeline must find it. Leaves out: importing the file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.durable import replacing
from assay.progress import Advance, silent
from assay_policy_training.prompts.constrained import ConstrainedPrompt
from assay_policy_training.slots import PromptItem, Sampler
from assay_serving.verifiers import verify

ROLLOUT_ROWS = 16  # prompts a sampling call: enough to fill the cores, small enough for a moving progress bar


@dataclass(frozen=True)
class Pair:
    """One comparison whose better side the constraints decide."""

    record_id: str
    prompt: ConstrainedPrompt
    better: str
    worse: str


@dataclass
class Injected:
    """What the noisy source did to the file, by record id or count: the truth that the pipeline does not see."""

    pairs: int = 0
    flipped: set[str] = field(default_factory=set)
    repeated: int = 0
    identical_sides: int = 0
    empty_responses: int = 0
    broken_lines: int = 0


def sample_pairs(
    prompts: Sequence[ConstrainedPrompt],
    sampler: Sampler,
    *,
    samples: int,
    pairs_per_prompt: int,
    seed: int,
    prefix: str,
    on_progress: Advance = silent,
) -> list[Pair]:
    """Draw `samples` responses a prompt and pair those of which one satisfies more constraints than the other."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for start in range(0, len(prompts), ROLLOUT_ROWS):
        chunk = prompts[start : start + ROLLOUT_ROWS]
        items = [PromptItem(p.prompt, p.constraints) for p in chunk]
        batch = sampler.rollout(items, samples, seed=seed * 100_003 + start, version=0)
        answers: dict[str, list[str]] = {}
        order: list[str] = []
        for uid, response in zip(batch.uid, batch.responses, strict=True):
            if uid not in answers:
                order.append(uid)
            answers.setdefault(uid, []).append(response.strip())
        for prompt, uid in zip(chunk, order, strict=True):
            for better, worse in _contrasts(prompt, answers[uid], pairs_per_prompt, rng):
                pairs.append(Pair(f"{prefix}-{len(pairs):04d}", prompt, better, worse))
        on_progress(len(chunk))
    return pairs


def _contrasts(
    prompt: ConstrainedPrompt, responses: Sequence[str], limit: int, rng: random.Random
) -> Iterator[tuple[str, str]]:
    """Up to `limit` disjoint (better, worse) pairs of different, non-empty responses, the widest contrasts first."""
    distinct = sorted({r for r in responses if r})
    rng.shuffle(distinct)
    ranked = sorted(distinct, key=lambda r: verify(prompt.constraints, r).fraction)
    for index in range(min(limit, len(ranked) // 2)):
        worse, better = ranked[index], ranked[-1 - index]
        if verify(prompt.constraints, better).fraction > verify(prompt.constraints, worse).fraction:
            yield better, worse


def write_source(path: Path, pairs: Sequence[Pair], *, source: str, flip_share: float, seed: int) -> Injected:
    """Write the pairs as a noisy source would publish them, and return what was done to them.

    Exactly round(flip_share x pairs) labels are flipped. Rows are in the normalised JSON Lines format.
    """
    rng = random.Random(seed)
    injected = Injected(pairs=len(pairs))
    injected.flipped = set(rng.sample([p.record_id for p in pairs], round(flip_share * len(pairs))))
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        chosen, rejected = (pair.better, pair.worse)
        if pair.record_id in injected.flipped:
            chosen, rejected = rejected, chosen
        rows.append(_row(pair, pair.record_id, source, chosen, rejected))
    blemished = rng.sample(list(pairs), min(len(pairs), 9))
    for number, pair in enumerate(blemished[:5]):
        rows.append({**next(r for r in rows if r["id"] == pair.record_id), "id": f"{pair.record_id}-again{number}"})
        injected.repeated += 1
    for pair in blemished[5:7]:
        rows.append(_row(pair, f"{pair.record_id}-same", source, pair.better, pair.better))
        injected.identical_sides += 1
    for pair in blemished[7:]:
        rows.append(_row(pair, f"{pair.record_id}-empty", source, pair.better, ""))
        injected.empty_responses += 1
    rng.shuffle(rows)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    lines.insert(rng.randrange(len(lines)), lines[0][: len(lines[0]) // 2])
    injected.broken_lines = 1
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return injected


def _row(pair: Pair, record_id: str, source: str, chosen: str, rejected: str) -> dict[str, Any]:
    return {
        "id": record_id,
        "source": source,
        "prompt": [message.to_dict() for message in pair.prompt.prompt],
        "chosen": chosen,
        "rejected": rejected,
        "label_type": "model",
        "category": pair.prompt.kind,
        "license": "CC0-1.0",
        "lang": "en",
        "meta": pair.prompt.to_meta(),
    }
