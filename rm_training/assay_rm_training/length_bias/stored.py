"""Length bias of a model's stored scores.

Covers: a sample of scored responses by hash, reward against length in characters with correlations and means by length,
the labelled pairs of which both sides have scores. Leaves out: length in tokens, which takes the model's tokenizer, and
corrections (`assay length-bias`); the figures over pairs (`measure.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, clustered_mean
from assay.store.database import Connection
from assay_rm_training.length_bias.measure import Estimate, Floats

RESPONSES, PAIRS = 20_000, 3_000  #: at most so many are read
RESAMPLES = 1000
BINS = 10
_CELLS = 1_000_000  # resampled indices held at once


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
    reward per 100 characters within prompts. None where nothing varies. `pairs` of an estimate counts responses."""

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


def length_correlation(scored: StoredLengths, *, seed: int = 0) -> LengthCorrelation:
    """Each figure with its 95 % interval by bootstrap over prompts. Raises BadInputError for no responses."""
    if not len(scored.rewards):
        raise BadInputError("no scored responses to measure length bias on")
    _, member = np.unique(np.asarray(scored.prompts), return_inverse=True)
    size = np.bincount(member).astype(float)

    def moments(r: Floats, length: Floats) -> Floats:
        """[prompts, 6]: count and sums of r, l, rr, ll, rl of each prompt's responses."""
        columns = (np.ones(len(r)), r, length, r * r, length * length, r * length)
        return np.stack([np.bincount(member, weights=column) for column in columns], axis=1)

    # Centred at the grand means, against cancellation.
    r, length = scored.rewards - scored.rewards.mean(), scored.lengths - scored.lengths.mean()
    plain = moments(r, length)
    within = moments(
        r - (np.bincount(member, weights=r) / size)[member],
        length - (np.bincount(member, weights=length) / size)[member],
    )
    drawn = _resampled(np.concatenate([plain, within], axis=1), seed)
    plain_draws, within_draws = drawn[:, :6], drawn[:, 6:]
    return LengthCorrelation(
        _estimate(_pearson(plain.sum(0)[None]), _pearson(plain_draws), len(r)),
        _estimate(_pearson(within.sum(0)[None]), _pearson(within_draws), len(r)),
        _estimate(_slope(within.sum(0)[None]), _slope(within_draws), len(r)),
    )


def by_length(scored: StoredLengths, *, bins: int = BINS, seed: int = 0) -> list[LengthBin]:
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


def _resampled(moments: Floats, seed: int) -> Floats:
    """Sums over prompts drawn with replacement: [prompts, columns] to [RESAMPLES, columns]."""
    rng, groups = np.random.default_rng(seed), len(moments)
    out = np.empty((RESAMPLES, moments.shape[1]))
    step = max(1, _CELLS // groups)
    for start in range(0, RESAMPLES, step):
        draws = min(step, RESAMPLES - start)
        drawn = rng.integers(groups, size=(draws, groups)) + groups * np.arange(draws)[:, None]
        times = np.bincount(drawn.ravel(), minlength=draws * groups).reshape(draws, groups).astype(float)
        out[start : start + draws] = times @ moments
    return out


def _pearson(m: Floats) -> Floats:
    """Of moments [draws, 6]; NaN where either does not vary."""
    n, sr, sl, srr, sll, srl = m.T
    with np.errstate(invalid="ignore", divide="ignore"):
        vr, vl = srr - sr * sr / n, sll - sl * sl / n
        varies = (vr > 1e-12 * np.maximum(srr, 1e-300)) & (vl > 1e-12 * np.maximum(sll, 1e-300))
        out: Floats = np.where(varies, (srl - sr * sl / n) / np.sqrt(vr * vl), np.nan)
    return out


def _slope(m: Floats) -> Floats:
    """Reward per 100 units of length, of moments within prompts [draws, 6]; NaN where no length varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Floats = np.where(m[:, 4] > 0, 100.0 * m[:, 5] / m[:, 4], np.nan)
    return out


def _estimate(value: Floats, draws: Floats, count: int) -> Estimate | None:
    if not np.isfinite(value[0]):
        return None
    finite = draws[np.isfinite(draws)]
    if len(finite) < 2:
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return Estimate(float(value[0]), Interval(float(low), float(high)), count)


def _floats(column: Sequence[float] | npt.NDArray[np.float64]) -> Floats:
    return np.asarray(column, dtype=float)
