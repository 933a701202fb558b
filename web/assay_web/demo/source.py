"""The demo's raw data: prompts with checkable constraints, sampled responses, labels of sources of different worth.

Covers: sampling with the demo's language model, forming comparisons, labelling each by one simulated source, and the
defects of a real file (repeated rows, an empty response, identical sides, a broken line), each counted. Which labels
are wrong is returned separately and is not in the file. Leaves out: importing the file.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.runs.progress_bar import Advance, silent
from assay.system.atomic_files import replacing
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.constrained import ConstrainedPrompt
from assay_policy_training.plugins.protocols import Sampler
from assay_serving.verifiers import verify

ROLLOUT_PROMPTS = 32  # prompts a sampling call: enough to fill the cores, small enough for a moving progress bar


@dataclass(frozen=True)
class Pair:
    """One comparison whose better side the constraints decide."""

    record_id: str
    prompt: ConstrainedPrompt
    better: str
    worse: str


@dataclass(frozen=True)
class Blemishes:
    """Rows added to the file that a real file would have too."""

    repeated: int = 5
    identical_sides: int = 2
    empty_responses: int = 2
    broken_lines: int = 1


SOURCE_BLEMISHES = Blemishes()


@dataclass(frozen=True)
class SimulatedSource:
    """Who labels a `share` of the comparisons. It names the longer response in a share `longer` of the cases, whatever
    is right; the rest of its labels are wrong with probability `wrong`."""

    name: str
    share: float
    wrong: float
    longer: float = 0.0

    def prefers_better(self, pair: Pair, rng: random.Random) -> bool:
        """Whether its label of the pair is right."""
        if rng.random() < self.longer and len(pair.better) != len(pair.worse):
            return len(pair.better) > len(pair.worse)
        return rng.random() >= self.wrong


@dataclass(frozen=True)
class SourceTruth:
    """What the pipeline does not see: the source of each record, and the records whose label is wrong."""

    source: dict[str, str]
    wrong: frozenset[str]

    @property
    def pairs(self) -> int:
        return len(self.source)

    def wrong_of(self, name: str) -> tuple[int, int]:
        """(wrong labels, labels) of one source."""
        records = [record for record, source in self.source.items() if source == name]
        return len(self.wrong.intersection(records)), len(records)


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
    for start in range(0, len(prompts), ROLLOUT_PROMPTS):
        chunk = prompts[start : start + ROLLOUT_PROMPTS]
        items = [PromptItem(p.prompt, p.constraints) for p in chunk]
        batch = sampler.rollout(items, samples, seed=seed * 1_000 + start, version=0)
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
    """Up to `limit` (better, worse) pairs of different, non-empty responses, the widest contrasts first.

    A response takes part in at most two, so that no single one weighs much.
    """
    share = {r: verify(prompt.constraints, r).fraction for r in sorted({r for r in responses if r})}
    pairs = [(better, worse) for better in share for worse in share if share[better] > share[worse]]
    rng.shuffle(pairs)
    pairs.sort(key=lambda pair: share[pair[1]] - share[pair[0]])
    used: Counter[str] = Counter()
    yielded = 0
    for better, worse in pairs:
        if yielded < limit and used[better] < 2 and used[worse] < 2:
            used.update((better, worse))
            yielded += 1
            yield better, worse


def write_source(path: Path, pairs: Sequence[Pair], sources: Sequence[SimulatedSource], *, seed: int) -> SourceTruth:
    """Write the pairs as the sources would publish them, and return which labels are wrong.

    Each source labels its share of the pairs, drawn at random. Rows are in the normalised JSON Lines format.
    """
    rng = random.Random(seed)
    names = {source.name: source for source in sources}
    drawn_sources = rng.choices(list(names), weights=[source.share for source in sources], k=len(pairs))
    source_of = {pair.record_id: name for pair, name in zip(pairs, drawn_sources, strict=True)}
    wrong: set[str] = set()
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        name = source_of[pair.record_id]
        if not names[name].prefers_better(pair, rng):
            wrong.add(pair.record_id)
        chosen, rejected = (pair.better, pair.worse) if pair.record_id not in wrong else (pair.worse, pair.better)
        rows.append(_row(pair, pair.record_id, name, chosen, rejected))
    blemish = SOURCE_BLEMISHES
    drawn = rng.sample(range(len(pairs)), blemish.repeated + blemish.identical_sides + blemish.empty_responses)
    for index in drawn[: blemish.repeated]:
        rows.append({**rows[index], "id": f"{pairs[index].record_id}-again"})
    for index in drawn[blemish.repeated : blemish.repeated + blemish.identical_sides]:
        pair = pairs[index]
        rows.append(_row(pair, f"{pair.record_id}-same", source_of[pair.record_id], pair.better, pair.better))
    for index in drawn[blemish.repeated + blemish.identical_sides :]:
        pair = pairs[index]
        rows.append(_row(pair, f"{pair.record_id}-empty", source_of[pair.record_id], pair.better, ""))
    rng.shuffle(rows)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    for _ in range(blemish.broken_lines):
        lines.insert(rng.randrange(len(lines)), lines[0][: len(lines[0]) // 2])
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return SourceTruth(source_of, frozenset(wrong))


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
