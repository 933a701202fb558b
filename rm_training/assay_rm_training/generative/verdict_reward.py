"""Reward of a generative judge by its verdicts: prompts, reward parts, and metrics of each step.

Covers: judge questions in both orders as two prompts of one batch, reward parts from the same answers, parse failures
and position bias by step. Leaves out: the loop (policy_training), the run (`rl_run`).

Where the judge calls tools (sampler `tool_calls`), its last turn is read and the calls are counted.

Parts, weighed by the recipe's `reward.weights` (as in J1, arXiv 2505.10320, and RM-R1):
  verdict      1 if the verdict is the label, else 0; an answer without a verdict gets 0, the least, and is counted
  tail         RM-R1's rule (arXiv 2505.02387): +1 if the last 80 characters hold the right final line and not the
               other, else -1; of formats with two labels only
  consistency  J1 (arXiv 2505.10320): 1 to rollout i of both orders if both are right, else 0; of pairs only
  format       R1-Reward (arXiv 2505.02835): 1 for some reasoning and a verdict that can be read, else 0
  reasoning    R1-Reward: whether the reasoning leads to the verdict (`reasoning_check`), with a second judge only, who
               is asked where the verdict is right; for the others it is 0
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from assay.errors import BadInputError
from assay.ids import rows_digest
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Rewards, StepReport
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_rm_training.generative.reasoning_check import ReasoningCheck
from assay_serving.generative.templates import JudgeFormat
from assay_serving.generative.verdict import JudgeVerdict, read_verdict, tail_reward

VERDICT, TAIL, CONSISTENCY, FORMAT, REASONING = "verdict", "tail", "consistency", "format", "reasoning"
#: The reward of an answer without a verdict.
LEAST = {VERDICT: 0.0, TAIL: -1.0, CONSISTENCY: 0.0}


def judge_prompts(rows: Sequence[JudgedRow], form: JudgeFormat) -> list[list[PromptItem]]:
    """The questions of each row: both orders of a pair, one of a single response. Rationales play no part here."""
    units = []
    for number, row in enumerate(rows):
        ways = [(row.responses, row.label)]
        if len(row.responses) == 2:
            ways.append((row.responses[::-1], "AB"["BA".index(row.label)]))
        units.append(
            [
                PromptItem(
                    form.ask(row.prompt, responses, row.principle),
                    meta={"row": number, "order": order, "label": label, "category": row.category},
                )
                for order, (responses, label) in enumerate(ways)
            ]
        )
    return units


class JudgePrompts:
    """S0: units (both orders of a pair) in shuffled epochs, so that both orders are in one batch."""

    def __init__(self, units: Sequence[Sequence[PromptItem]], *, seed: int) -> None:
        self._partners = {unit[0].meta["row"]: list(unit) for unit in units}
        self._size = max((len(unit) for unit in units), default=1)
        self._drawn = ShuffledPrompts([unit[0] for unit in units], seed=seed)
        self._labels = rows_digest((item.meta["row"], item.meta["label"]) for unit in units for item in unit)

    def next(self, n: int) -> list[PromptItem]:
        """Raises BadInputError where `n` is not a multiple of the unit."""
        if n % self._size:
            raise BadInputError(
                f"must be a multiple of {self._size}, both orders of a pair, not {n}", field="sampling.prompts_per_step"
            )
        return [p for first in self._drawn.next(n // self._size) for p in self._partners[first.meta["row"]]]

    def observe(self, report: StepReport) -> None:
        """This source does not adapt."""

    def state_dict(self) -> dict[str, Any]:
        return {**self._drawn.state_dict(), "labels": self._labels}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when prompts or labels differ from the saved state's."""
        if state["labels"] != self._labels:
            raise BadInputError("these are not the labels that the interrupted run used", field="data")
        self._drawn.load_state_dict(state)


class VerdictReward:
    """S3 and S16: rewards of rollouts by their verdicts, and the figures of the last scored step."""

    name = VERDICT

    def __init__(self, form: JudgeFormat, check: ReasoningCheck | None = None) -> None:
        self.form, self.check = form, check
        self._figures: dict[str, float] = {}

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        """An unreadable answer has the least reward. Raises ValueError where the two
        orders of a pair have different numbers of rollouts."""
        labels = [str(item.meta["label"]) for item in items]
        responses = [item.answer_in(text) for item, text in zip(items, responses, strict=True)]
        read = [read_verdict(text, self.form.labels) for text in responses]
        verdict_labels = [verdict.label if isinstance(verdict, JudgeVerdict) else None for verdict in read]
        right = [
            float(one == label) if one is not None else LEAST[VERDICT]
            for one, label in zip(verdict_labels, labels, strict=True)
        ]
        parts = {VERDICT: right}
        if len(self.form.labels) == 2:
            parts[TAIL] = [self._tail(text, label) for text, label in zip(responses, labels, strict=True)]
        if self.form.responses == 2:
            parts[CONSISTENCY] = both_right(items, right)
        analyses = [
            text[: verdict.line_start].strip() if isinstance(verdict, JudgeVerdict) else ""
            for text, verdict in zip(responses, read, strict=True)
        ]
        parts[FORMAT] = [float(bool(analysis)) for analysis in analyses]
        failures: list[tuple[ScoreFailure, ...]] = [() for _ in items]
        if self.check is not None:
            correct = [index for index, credit in enumerate(right) if credit]
            marks = self.check.of([analyses[index] for index in correct], [labels[index] for index in correct])
            parts[REASONING] = [0.0] * len(items)
            for index, one in zip(correct, marks, strict=True):
                parts[REASONING][index] = math.nan if isinstance(one, ScoreFailure) else one
                failures[index] = (one,) if isinstance(one, ScoreFailure) else ()
        self._figures = self._measured(
            items, verdict_labels, right, Counter(v.fault for v in read if not isinstance(v, JudgeVerdict))
        )
        if CONSISTENCY in parts:
            self._figures["both_orders_right"] = sum(parts[CONSISTENCY]) / len(items)
        return Rewards(
            {name: torch.tensor(values, dtype=torch.float64) for name, values in parts.items()},
            failures,
            [{} for _ in items],
        )

    def measure(self, report: StepReport) -> dict[str, float]:
        """Shares of the step's answers: `parse_failures`, `fault_KIND`,
        `first_position` and `position_bias` (accuracy where the better response stood first less where it stood second,
        of readable verdicts)."""
        return dict(self._figures)

    def _tail(self, text: str, label: str) -> float:
        """RM-R1's rule with the final lines as tags; trailing white space is ignored."""
        wrong = next(other for other in self.form.labels if other != label)
        return float(tail_reward(text.rstrip(), self.form.final_line(label), self.form.final_line(wrong)))

    def _measured(
        self,
        items: Sequence[PromptItem],
        labels: Sequence[str | None],
        right: Sequence[float],
        faults: Counter[str],
    ) -> dict[str, float]:
        read = [(item, label, credit) for item, label, credit in zip(items, labels, right, strict=True) if label]
        figures = {"parse_failures": faults.total() / len(items)}
        figures |= {f"fault_{fault}": count / len(items) for fault, count in faults.items()}
        if self.form.responses != 2:
            return figures
        if read:
            figures["first_position"] = sum(label == "A" for _, label, _ in read) / len(read)
        halves = [[credit for item, _, credit in read if item.meta["label"] == side] for side in "AB"]
        if all(halves):
            first, second = (sum(half) / len(half) for half in halves)
            figures["position_bias"] = first - second
        return figures


def both_right(items: Sequence[PromptItem], right: Sequence[float]) -> list[float]:
    """J1's consistency: 1 where rollout i of both orders of a pair is right, else 0.
    Raises ValueError where the orders have different numbers of rollouts."""
    places: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        places[item.meta["row"], item.meta["order"]].append(index)
    credit = [0.0] * len(items)
    for (row, order), mine in places.items():
        other = places.get((row, 1 - order), [])
        if other and len(other) != len(mine):
            raise ValueError(f"row {row} has {len(mine)} rollouts in one order and {len(other)} in the other")
        for a, b in zip(mine, other, strict=False):
            credit[a] = float(right[a] == 1.0 and right[b] == 1.0)
    return credit
