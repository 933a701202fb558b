"""Evaluation of a principle model on held-out rows: through the serving engine, against the base rate, by cell.

Covers: accuracy of single judgments with intervals, the baseline that answers each principle's base rate in training,
the four cells of seen and unseen prompts and principles, every principle by itself, calibration of P(Yes), the pairs of
opposite fulfilment. Leaves out: dividing the rows (`principle_split.py`).

A judgment is right where the reward's sign is the label's; a reward of exactly 0 is wrong. Rows that could not be
scored are left out and counted. Most principles are fulfilled by most responses, so accuracy is compared with a
baseline, which knows a seen principle's base rate, and for an unseen one that of all training rows.

Ranking accuracy of a principle model on pairs of responses that fulfil and violate the same principle. Covers: making
the pairs from judged rows, their accuracy, pooled and per principle, beside the length baseline. Leaves out: scoring,
the benchmark of such pairs (`benchmarks/protocols/principlebench.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.runs.coverage import Coverage
from assay.runs.progress_bar import Advance, silent
from assay.score import Score
from assay.statistics.intervals import Interval, clustered_mean, interval_text, share_interval, wilson
from assay_rm_training.calibration.measures import Bin, brier, expected_calibration_error, reliability
from assay_rm_training.data.principle_rows import PrincipleRow, principle_key, prompt_key
from assay_rm_training.evaluation.principle_split import HeldOutRow
from assay_rm_training.evaluation.report import EvaluationReport
from assay_serving.scorer import ScoreItem, Scorer

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class JudgedItem:
    """One row's outcome. `reward` None where it could not be scored, then `failure` says why."""

    prompt_id: str
    response_id: str
    principle: str
    fulfilled: bool
    cell: str
    base_rate: float | None
    source: str
    category: str
    characters: int
    reward: float | None
    probability: float | None
    truncated: bool
    failure: str | None


@dataclass(frozen=True)
class JudgedPart:
    """Figures of some rows. `baseline`: accuracy of answering each principle's base rate in training; None where that
    is not known. `gain`: accuracy - baseline over the same rows, its interval by prompt."""

    name: str
    rows: int
    yes_share: float
    accuracy: float
    wilson: Interval
    interval: Interval | None  #: over prompts; None: undetermined, too few of them
    baseline: float | None
    gain: Interval | None
    base_rate: float | None = None  #: in training, of one principle


@dataclass(frozen=True)
class PrincipleEvaluation(EvaluationReport):
    """Result of one evaluation. `macro_*`: unweighted means over principles. `nll`, `ece`, `brier`: of P(Yes);
    `agreement`: accuracy of P(Yes) > 1/2, which a calibration moves and `overall.accuracy` (of the reward) does not."""

    rows: int
    scored: int
    failures: dict[str, int]
    overall: JudgedPart
    macro_accuracy: float
    macro_baseline: float | None
    agreement: float
    nll: float
    baseline_nll: float | None
    ece: float
    brier: float
    baseline_brier: float | None
    bins: tuple[Bin, ...]
    truncated_share: float
    cells: tuple[JudgedPart, ...]
    principles: tuple[JudgedPart, ...]
    pairs: "OppositePairs | None"
    seed: int
    items: tuple[JudgedItem, ...] = field(repr=False)

    def calibrated(self, calibration: Calibration) -> "PrincipleEvaluation":
        """The same judgments with the probabilities of `calibration` and the metrics of these."""
        items = tuple(
            item if item.reward is None else replace(item, probability=calibration.probability(item.reward))
            for item in self.items
        )
        return replace(self, items=items, **_of_probabilities([item for item in items if item.failure is None]))

    @property
    def coverage(self) -> Coverage:
        return Coverage(self.rows, self.scored, "judgments", self.failures, sum(item.truncated for item in self.items))

    def item_records(self) -> Iterator[dict[str, Any]]:
        return map(asdict, self.items)

    def card_rows(self) -> list[tuple[str, str]]:
        failed = "".join(f", {n} {code}" for code, n in self.failures.items())
        rows = [
            ("judgments", f"{self.scored} scored of {self.rows}{failed}; {100 * self.overall.yes_share:.1f} % yes"),
            ("accuracy", _line(self.overall)),
            *self.warning_rows(),
            *((f"  {cell.name} ({cell.rows})", _line(cell)) for cell in self.cells),
            ("mean over principles", _beside(self.macro_accuracy, self.macro_baseline)),
        ]
        if self.pairs is not None:
            pairs = self.pairs
            rows.append(
                (
                    f"opposite pairs ({pairs.pairs})",
                    f"{pairs.accuracy:.4f} (95 %: {interval_text(pairs.interval)}), mean over "
                    f"{pairs.principles} principles {pairs.principle_mean:.4f}; the longer (characters) "
                    f"{pairs.length_baseline:.4f}",
                )
            )
        rows += [
            ("expected calibration error", f"{self.ece:.4f}; Brier {_beside(self.brier, self.baseline_brier)}"),
            ("negative log-likelihood", _beside(self.nll, self.baseline_nll)),
            ("truncated", f"{self.truncated_share:.4f} of the scored judgments"),
        ]
        return rows


def evaluate_rows(
    scorer: Scorer, rows: Sequence[PrincipleRow], *, seed: int = 0, advance: Advance = silent
) -> PrincipleEvaluation:
    """Score every row and report. Rows that are not `HeldOutRow`s have no cell and no base rate.

    Raises BadInputError for no rows, or where not one could be scored.
    """
    if not rows:
        raise BadInputError("there are no judged responses to evaluate on")
    scores = scorer.score([ScoreItem(row.prompt, row.response, row.principle) for row in rows], advance)
    items = tuple(_judged(row, score) for row, score in zip(rows, scores, strict=True))
    failures = Counter(item.failure for item in items if item.failure is not None)
    scored_rows = [(row, item) for row, item in zip(rows, items, strict=True) if item.failure is None]
    if not scored_rows:
        first = next(s.message for s in scores if not isinstance(s, Score))
        raise BadInputError(f"none of the {len(rows)} judged responses could be scored: {first}")
    scored = [item for _, item in scored_rows]
    groups = [prompt_key(row.prompt) for row, _ in scored_rows]
    rewards = [item.reward or 0.0 for item in scored]
    labels = np.array([item.fulfilled for item in scored], dtype=float)
    rates = _rates(scored)
    keys = [principle_key(item.principle) for item in scored]
    principles = _parts(scored, groups, keys, seed, names={k: i.principle for k, i in zip(keys, scored, strict=True)})
    cells = [item.cell for item in scored]
    return PrincipleEvaluation(
        model=scorer.info,
        rows=len(rows),
        scored=len(scored),
        failures=dict(failures),
        overall=_part("all", scored, groups, seed),
        macro_accuracy=float(np.mean([part.accuracy for part in principles])),
        macro_baseline=_mean([part.baseline for part in principles]),
        **_of_probabilities(scored),
        baseline_nll=None if rates is None else _nll(rates, labels),
        baseline_brier=None if rates is None else brier(rates, labels),
        truncated_share=sum(item.truncated for item in scored) / len(scored),
        cells=_parts(scored, groups, cells, seed) if any(cells) else (),
        principles=principles,
        pairs=pair_figures(opposite_pairs([row for row, _ in scored_rows]), rewards, seed=seed),
        seed=seed,
        items=items,
    )


def _judged(row: PrincipleRow, score: Any) -> JudgedItem:
    held_out = row if isinstance(row, HeldOutRow) else None
    prompt = ids.prompt_id(row.prompt)
    ok = isinstance(score, Score)
    return JudgedItem(
        prompt_id=prompt,
        response_id=ids.response_id(prompt, row.response),
        principle=row.principle,
        fulfilled=row.fulfilled,
        cell=held_out.cell if held_out else "",
        base_rate=held_out.base_rate if held_out else None,
        source=row.source,
        category=row.category,
        characters=len(row.response),
        reward=score.reward if ok else None,
        probability=score.probability if ok else None,
        truncated=ok and score.truncated,
        failure=None if ok else score.code,
    )


def _parts(
    items: Sequence[JudgedItem],
    groups: Sequence[str],
    keys: Sequence[str],
    seed: int,
    names: dict[str, str] | None = None,
) -> tuple[JudgedPart, ...]:
    """A part for each key, the largest first; `names`: what to call them."""
    members: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        members.setdefault(key, []).append(number)
    ordered = sorted(members.items(), key=lambda part: (-len(part[1]), part[0]))
    return tuple(
        _part(names[key] if names else key, [items[i] for i in indices], [groups[i] for i in indices], seed)
        for key, indices in ordered
    )


def _part(name: str, items: Sequence[JudgedItem], groups: Sequence[str], seed: int) -> JudgedPart:
    labels = np.array([item.fulfilled for item in items])
    rewards = np.array([item.reward for item in items], dtype=float)
    right = np.where(labels, rewards > 0, rewards < 0).astype(float)
    rates = _rates(items)
    baseline = None if rates is None else ((rates > 0.5) == labels).astype(float)
    same = {item.base_rate for item in items}
    return JudgedPart(
        name=name,
        rows=len(items),
        yes_share=float(labels.mean()),
        accuracy=float(right.mean()),
        wilson=wilson(float(right.sum()), len(right)),
        interval=share_interval(right.tolist(), groups),
        baseline=None if baseline is None else float(baseline.mean()),
        gain=None if baseline is None else clustered_mean((right - baseline).tolist(), groups),
        base_rate=same.pop() if len(same) == 1 else None,
    )


def _rates(items: Sequence[JudgedItem]) -> Floats | None:
    """Base rates [N]; None unless all are known."""
    rates = [item.base_rate for item in items]
    return None if None in rates else np.array(rates, dtype=float)


def _of_probabilities(items: Sequence[JudgedItem]) -> dict[str, Any]:
    """The metrics of P(Yes)."""
    probabilities = np.array([item.probability for item in items], dtype=float)
    labels = np.array([item.fulfilled for item in items], dtype=float)
    return {
        "agreement": float(((probabilities > 0.5) == (labels > 0.5)).mean()),
        "nll": _nll(probabilities, labels),
        "ece": expected_calibration_error(probabilities, labels),
        "brier": brier(probabilities, labels),
        "bins": reliability(probabilities, labels),
    }


def _nll(probabilities: Floats, labels: Floats) -> float:
    """Mean cross-entropy in nats; probabilities of 0 and 1 are taken as 1e-6 from them, so that one wrong base rate of
    0 or 1 does not make the baseline infinite."""
    p = np.clip(np.where(labels > 0.5, probabilities, 1 - probabilities), 1e-6, None)
    return float(-np.log(p).mean())


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def _line(part: JudgedPart) -> str:
    line = f"{part.accuracy:.4f} (95 %: {interval_text(part.interval)})"
    if part.baseline is None:
        return line
    return f"{line}; base rate {part.baseline:.4f}, gain {interval_text(part.gain, '+.4f')}"


def _beside(value: float, baseline: float | None) -> str:
    return f"{value:.4f}" if baseline is None else f"{value:.4f}; base rate {baseline:.4f}"


class OppositePair(NamedTuple):
    """Numbers of two rows with the same prompt and principle: one fulfils it, the other does not."""

    satisfying: int
    violating: int
    principle: str
    prompt: str
    longer: float  #: 1.0 where the satisfying response has more characters


@dataclass(frozen=True)
class OppositePairs:
    """Accuracy of ranking the satisfying response higher; a tie is wrong. `principle_mean`: unweighted over principles;
    `interval`: of the pooled accuracy, by prompt; None: undetermined, too few prompts."""

    pairs: int
    accuracy: float
    interval: Interval | None
    principle_mean: float
    principles: int
    length_baseline: float
    by_principle: dict[str, tuple[int, float]]  #: principle -> (pairs, accuracy)


def opposite_pairs(rows: Sequence[PrincipleRow]) -> list[OppositePair]:
    """Every pair of a fulfilling and a violating response to one prompt under one principle, in the rows' order."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        groups[prompt_key(row.prompt), principle_key(row.principle)].append(number)
    pairs = []
    for (prompt, _), members in groups.items():
        principle = rows[members[0]].principle
        for yes in (n for n in members if rows[n].fulfilled):
            for no in (n for n in members if not rows[n].fulfilled and rows[n].response != rows[yes].response):
                longer = float(len(rows[yes].response) > len(rows[no].response))
                pairs.append(OppositePair(yes, no, principle, prompt, longer))
    return pairs


def pair_figures(pairs: Sequence[OppositePair], rewards: Sequence[float], *, seed: int = 0) -> OppositePairs | None:
    """Figures of one reward a row [rows]; None where there is no pair."""
    if not pairs:
        return None
    right = [float(rewards[pair.satisfying] > rewards[pair.violating]) for pair in pairs]
    names = {principle_key(pair.principle): pair.principle for pair in reversed(pairs)}
    of: dict[str, list[float]] = defaultdict(list)
    for pair, value in zip(pairs, right, strict=True):
        of[principle_key(pair.principle)].append(value)
    return OppositePairs(
        pairs=len(pairs),
        accuracy=float(np.mean(right)),
        interval=share_interval(right, [pair.prompt for pair in pairs]),
        principle_mean=float(np.mean([np.mean(values) for values in of.values()])),
        principles=len(of),
        length_baseline=float(np.mean([pair.longer for pair in pairs])),
        by_principle={names[key]: (len(values), float(np.mean(values))) for key, values in of.items()},
    )
