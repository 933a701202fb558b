"""How well each person annotates: gold checks, agreement with the others, speed, position bias, ties and skips.

A flag is a reason to talk to an annotator, not a verdict: no vote is dropped for it. An annotator's own figures must
not reveal which item was a gold check, since a missed check could then be taken back: they cover whole blocks of items,
each with its share of checks (`assignment.check_is_due`), and first answers only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median

from assay.statistics.intervals import Interval, wilson
from assay_pipelines.annotation.assignment import block_of
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.queues import find_queue
from assay_pipelines.annotation.votes import QueueVote, by_comparison, queue_votes, vote_of

# What earns a flag. Shares are judged by their Wilson interval, so that few votes earn none.
LEAST_ACCURACY = 0.7  #: the interval of gold-check accuracy lies below it
FAST_SECONDS = 2.0  #: median time per item below it
MOST_TIES = 0.6  #: the interval of the tie rate lies above it
MOST_SKIPS = 0.3  #: the interval of the skip rate lies above it
LEAST_AGREEMENT = 0.5  #: the interval of agreement with the others' majority lies below it


@dataclass(frozen=True)
class AnnotatorQuality:
    """Rates are shares of the votes of one person. `votes`: those that say something of the pair; an item that was
    passed on is none. `first_rate`: how often the response shown first was preferred, of A/B answers; about 0.5 in a
    random order, and the interval says whether it is."""

    annotator: str
    votes: int
    checks: int  #: gold checks answered, skips left out
    passed: int
    accuracy: Interval | None
    compared: int  #: items on which the others have a majority without this person
    agreed: int
    agreement: Interval | None
    median_seconds: float | None
    first: int  #: preferred what was shown first
    preferred: int  #: preferred one of the two, and the order is known
    first_rate: Interval | None
    ties: int
    skips: int  #: of `votes`: cannot decide, or broken
    passed_on: int  #: left to other annotators
    undone: int  #: votes that replace an earlier one
    flags: tuple[str, ...]


def annotator_quality(votes: Sequence[QueueVote]) -> list[AnnotatorQuality]:
    """Of everybody who voted, by name. Adjudications are not counted."""
    cast = [vote for vote in votes if vote.role == "vote"]
    by_pair = by_comparison(vote for vote in cast if vote.check_label is None)
    names = sorted({vote.annotator for vote in cast})
    return [quality_of(name, [v for v in cast if v.annotator == name], by_pair) for name in names]


def quality_of(name: str, votes: list[QueueVote], by_pair: dict[str, list[QueueVote]]) -> AnnotatorQuality:
    """`votes`: of this person; `by_pair`: everybody's on each comparison, gold checks left out."""
    checks = [v for v in votes if v.check_label is not None and v.answer != "skip"]
    passed = sum(v.passed for v in checks)
    compared = agreed = 0
    for vote in votes:
        if vote.check_label is not None or vote.outcome is None:
            continue
        same = vote.agrees([v for v in by_pair.get(vote.comparison_id, ()) if v.annotator != name])
        if same is not None:
            compared += 1
            agreed += same
    preferred = [v for v in votes if v.answer in ("A", "B") and v.shown_order is not None]
    first = sum(v.answer == (v.shown_order or "")[0] for v in preferred)
    times = [v.seconds for v in votes if v.seconds is not None]
    ties, skips = sum(v.outcome == "tie" for v in votes), sum(v.outcome == "undecided" for v in votes)
    passed_on = sum(v.outcome is None for v in votes)
    unanswered = skips + passed_on
    answered = len(votes) - unanswered
    accuracy, agreement, first_rate = (
        _share(passed, len(checks)),
        _share(agreed, compared),
        _share(first, len(preferred)),
    )
    tie_rate, skip_rate = _share(ties, answered), _share(unanswered, len(votes))
    speed = median(times) if times else None
    flags = []
    if accuracy is not None and accuracy.high < LEAST_ACCURACY:
        flags.append(f"misses gold checks: {passed} of {len(checks)} right")
    if agreement is not None and agreement.high < LEAST_AGREEMENT:
        flags.append(f"disagrees with the others: {agreed} of {compared} as their majority")
    if speed is not None and len(times) >= 10 and speed < FAST_SECONDS:
        flags.append(f"very fast: median {speed:.1f} s")
    if first_rate is not None and not first_rate.low <= 0.5 <= first_rate.high:
        flags.append(f"prefers a side: the response shown first in {first} of {len(preferred)}")
    if tie_rate is not None and tie_rate.low > MOST_TIES:
        flags.append(f"mostly ties: {ties} of {answered}")
    if skip_rate is not None and skip_rate.low > MOST_SKIPS:
        flags.append(f"skips much: {unanswered} of {len(votes)}")
    return AnnotatorQuality(
        name,
        len(votes) - passed_on,
        len(checks),
        passed,
        accuracy,
        compared,
        agreed,
        agreement,
        speed,
        first,
        len(preferred),
        first_rate,
        ties,
        skips,
        passed_on,
        sum(v.undo for v in votes),
        tuple(flags),
    )


def _share(part: int, total: int) -> Interval | None:
    return wilson(part, total) if total else None


@dataclass(frozen=True)
class OwnFigures:
    """`votes`: how many of the person's first answers are covered; `block`: how many are added at a time. `streak`:
    gold checks passed one after the other, up to the last of them. `compared`: items on which the others have a
    majority; `agreed`: of them, those with the same answer. `first_rate`: share of preferences for the response shown
    first. None where there is nothing to tell from."""

    votes: int
    block: int
    checks: int
    passed: int
    streak: int
    accuracy: Interval | None
    compared: int
    agreed: int
    agreement: Interval | None
    median_seconds: float | None
    first_rate: Interval | None


def own_figures(ledger: Ledger, queue: str, annotator: str) -> OwnFigures:
    """Raises NotFoundError for an unknown queue."""
    record = find_queue(ledger, queue)
    block = block_of(record.gold_checks)
    with ledger.reading() as db:
        rows = db.execute(
            """SELECT v.judgment_id, i.comparison_id, v.annotator, v.answer, v.rationale, v.shown_order, v.seconds,
                      i.check_label, l.labels
               FROM votes v JOIN items i USING (item_id) LEFT JOIN vote_labels l USING (judgment_id)
               WHERE i.queue = ? AND v.annotator = ? AND v.role = 'vote' AND v.attempt = 1
               ORDER BY v.at, v.judgment_id""",
            (record.name, annotator),
        ).fetchall()
    votes = [vote_of(row) for row in rows[: len(rows) // block * block]]
    cast = [v for v in queue_votes(ledger, record.name) if v.role == "vote"] if votes else []
    quality = quality_of(annotator, votes, by_comparison(cast))
    streak = 0
    for vote in votes:
        if vote.check_label is not None and vote.answer != "skip":
            streak = streak + 1 if vote.passed else 0
    shared = {f.name: getattr(quality, f.name) for f in fields(OwnFigures) if hasattr(quality, f.name)}
    return OwnFigures(**shared | {"votes": len(votes), "block": block, "streak": streak})
