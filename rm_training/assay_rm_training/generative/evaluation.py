"""Evaluation of generative judges: accuracy by each rule, both orders, consistency, position bias, parse failures.

Covers: pairs (pairwise judges, both orders always) and single responses (pointwise ones), intervals, the curve of
accuracy over the number of votes, one record per item. Leaves out: benchmarks' own protocols, content-free answers
(`content_free`).

A pair without a readable decision counts as wrong, as benchmarks count it (JudgeBench); the rate of parse failures is
over all answers. Items whose question failed (too long, memory) are left out, and counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay import ids
from assay.errors import BadInputError
from assay.models.spec import RewardModelSpec
from assay.runs.coverage import LEAST_USED, Coverage
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay.statistics.intervals import Interval, interval_text, share_interval, wilson
from assay_rm_training.evaluation.report import EvaluationReport
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_serving.generative.answers import JudgeSample, Writer
from assay_serving.generative.engine import NO, YES, GenerativeScorer
from assay_serving.generative.pairwise import ORDERS, OrderOutcome, PairOutcome, PairwiseJudge
from assay_serving.generative.templates import format_named
from assay_serving.generative.voting import majority_at, right_by_and, right_by_sum


@dataclass(frozen=True)
class Figure:
    """A share of `total` items. `wilson` takes items as independent; `interval` does not, within a prompt."""

    value: float
    total: int
    wilson: Interval
    interval: Interval | None  #: None: undetermined, too few prompts

    @classmethod
    def of(cls, credits: Sequence[float], groups: Sequence[str], *, seed: int) -> "Figure":
        """`credits` in 0..1, one an item. Raises BadInputError for none."""
        total = len(credits)
        return cls(
            sum(credits) / total if total else 0.0,
            total,
            wilson(sum(credits), total),
            share_interval(credits, groups) if total else None,
        )

    def text(self) -> str:
        return f"{self.value:.4f} [{interval_text(self.interval)}] of {self.total}"


@dataclass(frozen=True)
class JudgeEvaluation(EvaluationReport):
    """`figures` by name, depending on the format; a figure of no items is left out.

    Pairs: accuracy (rule PROB), accuracy_sum, accuracy_and, single_order (mean over both orders), better_first and
    better_second (its two halves), consistency (both orders decided: for the same response), first_position (share of
    verdicts for the response shown first), agreement (samples of one question). `position_bias` = better_first -
    better_second.
    Single: accuracy (verdict = label), yes_share, pair_accuracy (rows of one prompt with both labels).
    `voting`: votes -> expected accuracy of their majority, votes drawn without replacement, a tie worth half.
    """

    format: str
    items: int
    failures: dict[str, int]
    answers: int
    faults: dict[str, int]
    figures: dict[str, Figure]
    position_bias: float | None
    voting: dict[int, Figure]
    tokens_out: float  #: mean of an answer
    seed: int
    records: tuple[dict[str, Any], ...] = field(repr=False, default=())

    @property
    def parse_failure_rate(self) -> float:
        return sum(self.faults.values()) / self.answers if self.answers else 0.0

    @property
    def coverage(self) -> Coverage:
        return Coverage(self.items + sum(self.failures.values()), self.items, "rows", self.failures)

    @property
    def warnings(self) -> list[str]:
        rate = self.parse_failure_rate
        unread = [f"{rate:.1%} of the answers have no verdict that can be read"] if rate > 1 - LEAST_USED else []
        return [*super().warnings, *unread]

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"parse_failure_rate": self.parse_failure_rate}

    def item_records(self) -> tuple[dict[str, Any], ...]:
        return self.records

    def card_rows(self) -> list[tuple[str, str]]:
        return self.rows()

    def rows(self) -> list[tuple[str, str]]:
        """Name and text of every figure."""
        rows = [(name.replace("_", " "), figure.text()) for name, figure in self.figures.items()]
        rows += self.warning_rows()
        if self.position_bias is not None:
            bias = f"{self.position_bias:+.4f}" if self.parse_failure_rate < 1 else "none: no answer has a verdict"
            rows.append(("position bias (better first - better second)", bias))
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(self.faults.items())) or "none"
        rows.append(("parse failures", f"{self.parse_failure_rate:.1%} of {self.answers} answers ({faults})"))
        rows += [(f"majority of {k}", figure.text()) for k, figure in self.voting.items() if k > 1]
        rows.append(("tokens an answer", f"{self.tokens_out:.1f}"))
        answers = [a for record in self.records for order in record.get("orders", [record]) for a in order["answers"]]
        if failed := [result["error"] for a in answers for turn in a.get("tools", ()) for result in turn["results"]]:
            rows.append(("tool calls", f"{len(failed)}, {sum(failed)} of them failed"))
        if self.failures:
            rows.append(("left out", ", ".join(f"{n} ({code})" for code, n in self.failures.items())))
        return rows


def evaluate_judge(
    writer: Writer, spec: RewardModelSpec, rows: Sequence[JudgedRow], *, seed: int = 0, advance: Advance = silent
) -> JudgeEvaluation:
    """Judge every row. `advance` counts questions: two a pair. Raises BadInputError for no rows, or where no question
    could be asked."""
    if not rows:
        raise BadInputError("there are no rows to evaluate on")
    if spec.judging is not None and format_named(spec.judging.format).responses == 2:
        return evaluate_pairs(PairwiseJudge(writer, spec, seed=seed), rows, seed=seed, advance=advance)
    return evaluate_single(GenerativeScorer(writer, spec, seed=seed), rows, seed=seed, advance=advance)


def evaluate_pairs(
    judge: PairwiseJudge, rows: Sequence[JudgedRow], *, seed: int = 0, advance: Advance = silent
) -> JudgeEvaluation:
    outcomes = judge.compare([row.pair() for row in rows], on_progress=advance)
    judged = [(row, one) for row, one in zip(rows, outcomes, strict=True) if isinstance(one, PairOutcome)]
    failures = Counter(one.code for one in outcomes if isinstance(one, ScoreFailure))
    if not judged:
        raise BadInputError(f"none of the {len(rows)} pairs could be judged: {dict(failures)}, e.g. {_first(outcomes)}")
    groups = [ids.prompt_id(row.prompt) for row, _ in judged]
    answers = [answer for _, one in judged for order in one.orders for answer in order.answers]

    def figure(credits: Sequence[tuple[int, float]]) -> Figure | None:
        """Of (place, credit)."""
        if not credits:
            return None
        return Figure.of([credit for _, credit in credits], [groups[index] for index, _ in credits], seed=seed)

    orders = [
        (index, order, row) for index, (row, one) in enumerate(judged) for order in one.orders if len(one.orders) == 2
    ]
    by_place = {
        position: [
            (index, float(order.decision == row.label))
            for index, order, row in orders
            if _better_at(order, row) == position
        ]
        for position in (0, 1)
    }
    decisions = [(index, row, one.decisions) for index, (row, one) in enumerate(judged)]
    figures = {
        "accuracy": figure([(p, float(one.decision == row.label)) for p, (row, one) in enumerate(judged)]),
        "accuracy_sum": figure([(p, float(right_by_sum(d[0], d[1], row.label))) for p, row, d in decisions]),
        "accuracy_and": figure([(p, float(right_by_and(d[0], d[1], row.label))) for p, row, d in decisions]),
        "single_order": figure([*by_place[0], *by_place[1]]),
        "better_first": figure(by_place[0]),
        "better_second": figure(by_place[1]),
        "consistency": figure(
            [(p, float(one.consistent)) for p, (_, one) in enumerate(judged) if one.consistent is not None]
        ),
        "first_position": figure(
            [(p, float(answer.label == "A")) for p, order, _ in orders for answer in order.answers if answer.label]
        ),
        "agreement": figure([(p, order.agreement) for p, order, _ in orders if order.agreement is not None]),
    }
    if judge.judging.samples == 1:
        figures["agreement"] = None  # one sample always agrees with itself
    present = {name: one for name, one in figures.items() if one is not None}
    votes = [
        Counter("none" if v is None else "right" if v == row.label else "wrong" for o in one.orders for v in o.votes)
        for row, one in judged
    ]
    first, second = figures["better_first"], figures["better_second"]
    return JudgeEvaluation(
        judge.info,
        judge.form.name,
        len(judged),
        dict(failures),
        len(answers),
        _faults(answers),
        present,
        first.value - second.value if first is not None and second is not None else None,
        _voting(votes, groups, len(ORDERS) * judge.judging.samples, seed=seed),
        sum(answer.tokens_out for answer in answers) / max(len(answers), 1),
        seed,
        tuple(_pair_record(row, one) for row, one in judged),
    )


def evaluate_single(
    scorer: GenerativeScorer, rows: Sequence[JudgedRow], *, seed: int = 0, advance: Advance = silent
) -> JudgeEvaluation:
    """Judge one response per row, against its label."""
    items = [row.item() for row in rows]
    outcomes = scorer.examine(items, advance)
    judged = [(row, one) for row, one in zip(rows, outcomes, strict=True) if not isinstance(one, ScoreFailure)]
    failures = Counter(one.code for one in outcomes if isinstance(one, ScoreFailure))
    if not judged:
        counted = f"none of the {len(rows)} responses could be judged: {dict(failures)}"
        raise BadInputError(f"{counted}, e.g. {_first(outcomes)}")
    groups = [ids.prompt_id(row.prompt) for row, _ in judged]
    yes_no = scorer.form.labels == (YES, NO)
    classes: dict[str, float] = getattr(scorer.form, "classes", {})
    by_probability = yes_no and scorer.judging.vote == "mean"
    threshold = 0.0 if by_probability else 0.5
    decided: list[str | None] = []
    for _, one in judged:
        if one.reward is None:
            decided.append(None)
        elif yes_no:
            decided.append("Yes" if one.reward > threshold else "No")
        elif classes:
            reward = one.reward
            decided.append(min(classes, key=lambda label: abs(classes[label] - reward)))
        else:
            decided.append(str(round(one.reward)) if scorer.form.labels else f"{one.reward:g}")
    right = [float(label == row.label) for label, (row, _) in zip(decided, judged, strict=True)]
    figures = {"accuracy": Figure.of(right, groups, seed=seed)}
    if yes_no:
        readable = [(index, label) for index, label in enumerate(decided) if label is not None]
        if readable:
            shares = [float(label == "Yes") for _, label in readable]
            figures["yes_share"] = Figure.of(shares, [groups[index] for index, _ in readable], seed=seed)
        if pairs := _contrasts(judged, groups):
            figures["pair_accuracy"] = Figure.of([credit for _, credit in pairs], [g for g, _ in pairs], seed=seed)
    answers = [answer for _, one in judged for answer in one.answers]
    votes = [
        Counter("none" if a.label is None else "right" if a.label == row.label else "wrong" for a in one.answers)
        for row, one in judged
    ]
    return JudgeEvaluation(
        scorer.info,
        scorer.form.name,
        len(judged),
        dict(failures),
        len(answers),
        _faults(answers),
        figures,
        None,
        _voting(votes, groups, scorer.judging.samples, seed=seed),
        sum(answer.tokens_out for answer in answers) / max(len(answers), 1),
        seed,
        tuple(
            {
                "prompt_id": group,
                "label": row.label,
                "reward": one.reward,
                "principle": row.principle,
                "agreement": one.agreement,
                "answers": [_answer_record(answer) for answer in one.answers],
            }
            for group, (row, one) in zip(groups, judged, strict=True)
        ),
    )


def _contrasts(judged: Sequence[tuple[JudgedRow, Any]], groups: Sequence[str]) -> list[tuple[str, float]]:
    """Each Yes row against each No row of its prompt and principle: 1 where it has the higher reward, 0 where not, or
    where either has none."""
    sides: dict[tuple[str, str], dict[str, list[float | None]]] = {}
    for group, (row, one) in zip(groups, judged, strict=True):
        sides.setdefault((group, row.principle or ""), {}).setdefault(row.label, []).append(one.reward)
    return [
        (group, float(yes is not None and no is not None and yes > no))
        for (group, _), by_label in sides.items()
        for yes in by_label.get("Yes", [])
        for no in by_label.get("No", [])
    ]


def _voting(votes: Sequence[Counter[str]], groups: Sequence[str], largest: int, *, seed: int) -> dict[int, Figure]:
    largest = min(largest, *(each.total() for each in votes))  # fewer where a meta reward model left some out
    return {
        k: Figure.of([majority_at(v["right"], v["wrong"], v["none"], k) for v in votes], groups, seed=seed)
        for k in range(1, largest + 1)
    }


def _better_at(order: OrderOutcome, row: JudgedRow) -> int:
    return order.order.index("AB".index(row.label))


def _first(outcomes: Sequence[object]) -> str:
    """Why the first item that failed did."""
    return next(one.message for one in outcomes if isinstance(one, ScoreFailure))


def _faults(answers: Sequence[JudgeSample]) -> dict[str, int]:
    return dict(Counter(answer.fault for answer in answers if answer.fault is not None))


def _pair_record(row: JudgedRow, one: PairOutcome) -> dict[str, Any]:
    return {
        "prompt_id": ids.prompt_id(row.prompt),
        "label": row.label,
        "source": row.source,
        "category": row.category,
        "decision": one.decision,
        "probability": one.probability,
        "uncertainty": one.uncertainty,
        "consistent": one.consistent,
        "orders": [
            {
                "first_shown": order.first_shown,
                "decision": order.decision,
                "probability": order.probability,
                "answers": [_answer_record(answer) for answer in order.answers],
            }
            for order in one.orders
        ],
    }


def _answer_record(answer: JudgeSample) -> dict[str, Any]:
    """`label` is the judge's: A is the response shown first."""
    logp = dict(answer.logp) if answer.logp is not None else None
    record = {"label": answer.label, "fault": answer.fault, "logp": logp, "text": answer.text}
    return record | ({"tools": [turn.to_dict() for turn in answer.turns]} if answer.turns else {})
