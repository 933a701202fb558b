"""Length bias of a model's stored scores.

Covers: a sample of scored responses by hash, reward against length in characters with correlations and means by length,
the labelled pairs of which both sides have scores. Leaves out: length in tokens, which takes the model's tokenizer, and
corrections (`assay length-bias`); the figures over pairs (`measure.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, clustered_mean, within_groups
from assay.store.database import Connection
from assay_rm_training.length_bias.measure import Estimate, Floats, correlation_estimate, slope_estimate

RESPONSES, PAIRS = 20_000, 3_000  #: at most so many are read
BINS = 10


@dataclass(frozen=True)
class ScoredModelRef:
    """The model of the scores; `principle` is "" for none."""

    version: str
    template_hash: str
    principle: str = ""

    def parameters(self) -> dict[str, str]:
        return {"version": self.version, "template": self.template_hash, "principle": self.principle}


@dataclass(frozen=True)
class StoredLengths:
    """Of scored responses: rewards [N], lengths in characters [N], prompt ids [N]. `total`: number in the store."""

    rewards: Floats
    lengths: Floats
    prompts: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class LengthBin:
    """One of ten groups of equal count, by length: their mean length, mean reward with its 95 % interval."""

    low: float
    high: float
    responses: int
    length: float
    reward: float
    interval: Interval | None


@dataclass(frozen=True)
class LengthCorrelation:
    """Pearson's correlation of reward and length over responses, and with each prompt's means taken off both; `slope`:
    reward per 100 characters within prompts. None where nothing varies. `pairs` of an estimate counts responses, within
    prompts those of prompts with several."""

    overall: Estimate | None
    within_prompt: Estimate | None
    slope: Estimate | None


@dataclass(frozen=True)
class LabelledLengths:
    """Of pairs with a label: rewards and lengths of both sides [N], prompt ids [N]. `total`: number in the store."""

    rewards: tuple[Floats, Floats]
    lengths: tuple[Floats, Floats]
    prompts: tuple[str, ...]
    total: int


_OWN = (
    "s.model_version = $version AND s.template_hash = $template AND s.principle = $principle AND s.reward IS NOT NULL"
)


def stored_lengths(db: Connection, of: ScoredModelRef, *, most: int = RESPONSES) -> StoredLengths:
    """A sample of `most` responses, drawn by hash."""
    rows = db.execute(
        f"""SELECT s.reward, length(r.content)::DOUBLE AS length, r.prompt_id, count(*) OVER () AS total
            FROM scores s JOIN responses r USING (response_id) WHERE {_OWN}
            ORDER BY hash(response_id) LIMIT {int(most)}""",
        of.parameters(),
    ).fetchnumpy()
    total = int(rows["total"][0]) if len(rows["total"]) else 0
    return StoredLengths(_floats(rows["reward"]), _floats(rows["length"]), tuple(rows["prompt_id"].tolist()), total)


def labelled_lengths(db: Connection, of: ScoredModelRef, *, most: int = PAIRS) -> LabelledLengths:
    """Pairs with label A or B whose two responses have scores, a sample of `most` drawn by hash."""
    rows = db.execute(
        f"""WITH own AS MATERIALIZED (SELECT s.response_id, s.reward FROM scores s WHERE {_OWN}),
                 rated AS (SELECT c.comparison_id, a.reward AS reward_a, b.reward AS reward_b
                          FROM comparisons c JOIN own a ON a.response_id = c.response_a
                                             JOIN own b ON b.response_id = c.response_b),
                 drawn AS (SELECT rated.*, p.label, p.prompt_id, p.response_a, p.response_b, count(*) OVER () AS total
                           FROM rated JOIN pools p USING (comparison_id) WHERE p.label IN ('A', 'B')
                           ORDER BY hash(rated.comparison_id) LIMIT {int(most)})
            SELECT if(label = 'A', reward_a, reward_b) AS chosen, if(label = 'A', reward_b, reward_a) AS rejected,
                   length(if(label = 'A', a.content, b.content))::DOUBLE AS chosen_length,
                   length(if(label = 'A', b.content, a.content))::DOUBLE AS rejected_length, d.prompt_id, d.total
            FROM drawn d JOIN responses a ON a.response_id = d.response_a
                         JOIN responses b ON b.response_id = d.response_b
            ORDER BY d.comparison_id""",
        of.parameters(),
    ).fetchnumpy()
    return LabelledLengths(
        (_floats(rows["chosen"]), _floats(rows["rejected"])),
        (_floats(rows["chosen_length"]), _floats(rows["rejected_length"])),
        tuple(rows["prompt_id"].tolist()),
        int(rows["total"][0]) if len(rows["total"]) else 0,
    )


def length_correlation(scored: StoredLengths) -> LengthCorrelation:
    """Each figure with its 95 % interval by prompt. Raises BadInputError for no responses."""
    if not len(scored.rewards):
        raise BadInputError("no scored responses to measure length bias on")
    rewards, lengths, count = scored.rewards, scored.lengths, len(scored.rewards)
    (r, n), member = within_groups((rewards, lengths), scored.prompts)
    several = np.bincount(member)[member] > 1  # single responses tell nothing of what happens within a prompt
    prompts = [prompt for prompt, used in zip(scored.prompts, several, strict=True) if used]
    return LengthCorrelation(
        correlation_estimate(rewards, lengths, scored.prompts, count),
        correlation_estimate(r[several], n[several], prompts, int(several.sum())) if prompts else None,
        slope_estimate(rewards[several], lengths[several], prompts, int(several.sum())) if prompts else None,
    )


def by_length(scored: StoredLengths, *, bins: int = BINS) -> list[LengthBin]:
    """Groups of equal count, shortest first; intervals by prompt, none for a group of too few."""
    order = np.argsort(scored.lengths, kind="stable")
    length_bins = []
    for rows in np.array_split(order, bins):
        if not len(rows):
            continue
        interval = clustered_mean(scored.rewards[rows].tolist(), [scored.prompts[row] for row in rows])
        lengths = scored.lengths[rows]
        length_bins.append(
            LengthBin(
                float(lengths.min()),
                float(lengths.max()),
                len(rows),
                float(lengths.mean()),
                float(scored.rewards[rows].mean()),
                interval,
            )
        )
    return length_bins


def _floats(column: Sequence[float] | npt.NDArray[np.float64]) -> Floats:
    return np.asarray(column, dtype=float)
