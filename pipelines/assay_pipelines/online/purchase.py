"""Buying labels: what the selector picks is put into the store, asked about, written down.

Covers: the labels that a loop has, its limits, answers that come later, contradictions. Leaves out: when labels are
bought and what is done with them (`labelling`).
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from assay import ids
from assay.domain import prompt_of
from assay.errors import AssayError
from assay.registry import made_by
from assay.runs.record import Run
from assay_pipelines.online.candidate_pairs import CandidatePairs
from assay_pipelines.online.config import BudgetPlan
from assay_pipelines.online.journal import Control, Journal, LabelRow
from assay_pipelines.online.label_sources.kind import Answer, AskedPair, LabelSource
from assay_pipelines.online.record import LoopRecord
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.kind import Selector, require

SOURCE_DOWN = "source_down"


@dataclass(frozen=True)
class LabelLimits:
    """What may be bought in all; None: no limit."""

    labels: int | None = None
    money: float | None = None
    steps: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, budget: BudgetPlan, control: Control) -> "LabelLimits":
        """An order from outside counts before the configured limit."""
        ordered = {name: getattr(control, name) for name in cls.__dataclass_fields__}
        return cls(**{name: getattr(budget, name) if v is None else v for name, v in ordered.items()})

    def reached(self, *, labels: int, money: float, step: int, minutes: float) -> str | None:
        """The first limit that leaves nothing."""
        spent = {"labels": labels, "money": money, "minutes": minutes}
        for name, value in spent.items():
            limit = getattr(self, name)
            if limit is not None and value >= limit:
                return f"{name}: {value:g} of {limit:g}"
        if self.steps is not None and step > self.steps:
            return f"steps: {step} of {self.steps}"
        return None


@dataclass
class LabelPurchase:
    """The labels of a loop, and the way to more. `held_out`: share of the prompts whose labels only measure."""

    record: LoopRecord
    source: LabelSource
    journal: Journal
    run: Run
    seed: int
    held_out: float
    lived: int = -1  #: the last step of the run that this one resumes: what came from outside until then is known
    rows: dict[str, LabelRow] = field(default_factory=dict)  #: the last row of each comparison
    unanswered_cost: float = 0.0  #: of questions that gave no label, and may be asked again

    def load(self, rows: Iterable[LabelRow]) -> None:
        """In place of those there are."""
        self.rows, self.unanswered_cost = {}, 0.0
        self._keep(rows)

    @property
    def labelled(self) -> list[LabelRow]:
        return [row for row in self.rows.values() if row.label is not None]

    @property
    def waiting(self) -> list[str]:
        return [c for c, row in self.rows.items() if row.label is None and row.answered_at is None]

    @property
    def cost(self) -> float:
        return self.unanswered_cost + sum(row.cost for row in self.rows.values())

    @property
    def committed(self) -> float:
        """The cost, with what the answers that are waited for will cost."""
        return self.cost + len(self.waiting) * getattr(self.source, "price_of_pair", 0.0)

    @property
    def contradictions(self) -> int:
        return sum(row.contradicts for row in self.rows.values())

    def buy(
        self,
        step: int,
        selector: Selector,
        pairs: CandidatePairs,
        candidates: Candidates,
        count: int,
        limits: LabelLimits,
    ) -> list[LabelRow]:
        """At most `count` labels, within the limits; the rows with an answer, as far as there are any already. What was
        not answered may be chosen again."""
        require(selector, candidates)
        most = count if limits.labels is None else min(count, limits.labels - len(self.rows))
        rng = np.random.default_rng([self.seed, step])
        picks = selector.choose(candidates, max(most, 0), rng) if len(candidates) else []
        if not picks:
            return []
        factory = made_by(selector)
        name, now = factory.name if factory else type(selector).__name__, time.time()
        rows: list[LabelRow] = []
        metas: list[dict[str, Any]] = []
        for pick in picks:
            sides = int(pairs.first[pick.pair]), int(pairs.second[pick.pair])
            item = pairs.items[sides[0]]
            prompt = pairs.prompts[sides[0]]
            rows.append(
                LabelRow(
                    step,
                    [message.to_dict() for message in item.prompt],
                    [pairs.texts[side] for side in sides],
                    pairs.comparisons[pick.pair],
                    name,
                    dict(pick.why),
                    self.source.name,
                    asked_at=now,
                    held_out=ids.fraction(self.seed, "held out", prompt) < self.held_out,
                )
            )
            constraints = [constraint.to_dict() for constraint in item.constraints]
            metas.append({"constraints": constraints} if constraints else {})
        self.record.add_pairs(rows, metas, self.run.id)
        money = None if limits.money is None else max(limits.money - self.committed, 0.0)
        return self._take(rows, self._answers(step, rows, money))

    def collect(self, step: int) -> list[LabelRow]:
        """Answers that have come since, to what was asked about before."""
        if not self.source.waits or not (waiting := self.waiting):
            return []
        replied = self.journal.reply(step, "collected") if step else None  # the first labels have no earlier life
        if replied is not None:
            answers = [_answer(payload) for payload in replied]
        elif step <= self.lived:
            return []
        else:
            try:
                answers = self.source.collect(waiting, self.run)
            except AssayError as error:
                self.journal.event(step, SOURCE_DOWN, source=self.source.name, why=str(error))
                return []
            if answers and step:
                self.journal.keep_reply(step, collected=[asdict(answer) for answer in answers])
        return self._take([self.rows[answer.comparison_id] for answer in answers], answers)

    def _answers(self, step: int, rows: Sequence[LabelRow], money: float | None) -> list[Answer]:
        comparisons = [row.comparison_id for row in rows]
        if self.journal.reply(step, "asked") == comparisons:
            answers = [_answer(payload) for payload in self.journal.reply(step, "answers")]
        else:
            pairs = [
                AskedPair(r.comparison_id, prompt_of(r.prompt), (r.responses[0], r.responses[1]), r.why) for r in rows
            ]
            try:
                answers = self.source.ask(pairs, self.run, money=money)
            except AssayError as error:  # the run goes on with the reward that it has
                if step == 0:
                    raise
                answers = [Answer(comparison, None, problem=f"{SOURCE_DOWN}: {error}") for comparison in comparisons]
            self.journal.keep_reply(step, asked=comparisons, answers=[asdict(answer) for answer in answers])
        problems = sorted({answer.problem for answer in answers if answer.label is None and answer.problem})
        if problems:
            kind = SOURCE_DOWN if problems[0].startswith(SOURCE_DOWN) else "unanswered"
            unanswered = sum(answer.label is None for answer in answers)
            self.journal.event(step, kind, source=self.source.name, pairs=unanswered, why="; ".join(problems))
        return answers

    def _take(self, rows: Sequence[LabelRow], answers: Sequence[Answer]) -> list[LabelRow]:
        by_comparison = {answer.comparison_id: answer for answer in answers}
        now, updated = time.time(), []
        for row in rows:
            if (answer := by_comparison.get(row.comparison_id)) is None:
                updated.append(row)
                continue
            about = {name: getattr(answer, name) for name in ("label", "cost", "judgments", "contradicts")}
            updated.append(replace(row, answered_at=now, **about))
        updated = self.record.judged(updated, self.run.id)
        answered = [row for row in updated if row.label is not None]
        self.record.decide(answered, self.run.id)
        self.journal.add_labels(updated)
        self._keep(updated)
        return answered

    def _keep(self, rows: Iterable[LabelRow]) -> None:
        """Without those that were not asked, or in vain: they may be chosen again."""
        for row in rows:
            waits = self.source.waits and row.answered_at is None
            if row.label is not None or row.judgments or waits:
                self.rows[row.comparison_id] = row
            else:
                self.rows.pop(row.comparison_id, None)
                self.unanswered_cost += row.cost


def _answer(payload: dict[str, Any]) -> Answer:
    return Answer(**{**payload, "judgments": tuple(payload["judgments"])})
