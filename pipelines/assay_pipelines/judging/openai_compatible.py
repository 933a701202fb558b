"""A language model as judge, behind any OpenAI-compatible chat endpoint.

Which candidate comes first is drawn by a hash of comparison, seed and sample, so that a repeated run sends the same
bytes; later samples alternate. With `both_orders` every sample is asked both ways, with the same demonstrations.

An answer needs at least half of the requested votes, and one in each order with `both_orders`. Where the others failed
for good (refused, unreadable) the opinion is based on the rest; where they failed temporarily (time-outs, rate limits,
the budget) the question has failed, and a later run pays only for the missing votes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import Field

from assay.domain import AnnotatorKind, Answer, ShownOrder, swap_answer
from assay.errors import BadInputError
from assay.ids import fraction
from assay.settings import check_settings
from assay.workspace import Workspace
from assay_pipelines.judging.judge import JudgeFailure, JudgeResult, OnResult, Vote
from assay_pipelines.judging.merging import OnSplit, merge_votes
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.calls import CallLog
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import Answered, CallFailure, ModelCall, ModelCaller, Outcome
from assay_pipelines.llm.prompts import GUIDELINE, Prompts, mark, turns
from assay_pipelines.llm.questions import Question, orders
from assay_pipelines.llm.replies import StrictAnswer

SYSTEM, USER = "judge.system.md", "judge.user.md"
TASK = "judge"
_NAMED = re.compile(r"\b(candidate|response) ([12])\b", re.IGNORECASE)
DEMONSTRATIONS = 8  #: at most, as in Skywork-Reward-V2


class JudgeAnswer(StrictAnswer):
    """The model's answer."""

    reasoning: str
    verdict: Literal["1", "2", "tie", "both_good", "both_bad"]
    strength: Literal[0, 1, 2, 3]
    confidence: float = Field(ge=0, le=1)


@dataclass(frozen=True)
class LlmJudgeConfig:
    """`samples`: votes per question and order. `seed` draws the orders. `on_split`: see `merging`."""

    endpoint: EndpointConfig
    name: str = ""  #: "" = the model's name
    samples: Annotated[int, Ge(1)] = 1
    both_orders: bool = False
    seed: int = 0
    on_split: OnSplit = "tie"
    prompts: Path | None = None  #: folder with the user's own prompts

    def __post_init__(self) -> None:
        check_settings(self)
        if self.samples > 1 and self.endpoint.temperature == 0:
            raise BadInputError(
                f"{self.samples} samples at temperature 0 are one answer paid {self.samples} times; set a temperature",
                field="samples",
            )
        if "@" in self.name:
            raise BadInputError("must not hold an @: what follows it is the version", field="name")


class LlmJudge:
    """See the module. `workspace` keeps the record of its calls."""

    kind: AnnotatorKind = "llm"
    most_demonstrations = DEMONSTRATIONS

    def __init__(self, config: LlmJudgeConfig, workspace: Workspace) -> None:
        self.settings, self.workspace = config, workspace
        self.prompts = Prompts(config.prompts)
        self.prompt_hash = self.prompts.hash(SYSTEM, USER, GUIDELINE)
        self.endpoint = ModelCaller(config.endpoint, self.prompts)
        guideline = self.prompts.render(GUIDELINE)
        self._system = self.prompts.render(SYSTEM, guideline=guideline)

    @property
    def name(self) -> str:
        return self.settings.name or self.settings.endpoint.model_name

    @property
    def config(self) -> Mapping[str, Any]:
        s = self.settings
        return {
            **s.endpoint.identity(),
            "samples": s.samples,
            "both_orders": s.both_orders,
            "seed": s.seed,
            "on_split": s.on_split,
            "prompts": self.prompt_hash,
        }

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        """Without a budget and a run; see `judge_within`."""
        self.judge_within(questions, on_result, spending=Spending(), run_id=None)

    def judge_within(
        self, questions: Sequence[Question], on_result: OnResult, *, spending: Spending, run_id: str | None
    ) -> str | None:
        """As `asking.SpendingJudge`. Raises BackendError where the endpoint refuses every call alike."""
        items = [self.calls(question) for question in questions]

        def finish(index: int, outcomes: Sequence[Outcome[JudgeAnswer]]) -> None:
            on_result(index, self.result(items[index], outcomes))

        with CallLog(self.workspace, annotator_of(self).id) as log:
            return self.endpoint.ask_all(items, finish, log=log, spending=spending, run_id=run_id)

    def calls(self, question: Question) -> list[ModelCall[JudgeAnswer]]:
        """The calls that one question takes."""
        s = self.settings
        return [
            ModelCall(
                TASK, question.comparison_id, self.messages(question, order, n), JudgeAnswer, self.prompt_hash, order, n
            )
            for n in range(s.samples)
            for order in orders(question.comparison_id, n, s.seed, both=s.both_orders)
        ]

    def messages(self, question: Question, order: ShownOrder, sample: int) -> tuple[Mapping[str, str], ...]:
        """The prompt of one question."""
        first, second = _in_order(question.response_a, question.response_b, order)
        demonstrations = []
        for number, example in enumerate(question.demonstrations[:DEMONSTRATIONS]):
            drawn = fraction(self.settings.seed, "demonstration", question.comparison_id, sample, number)
            its_order: ShownOrder = "AB" if drawn < 0.5 else "BA"
            candidate_1, candidate_2 = _in_order(example.response_a, example.response_b, its_order)
            demonstrations.append(
                {
                    "turns": turns(example.prompt),
                    "candidate_1": candidate_1,
                    "candidate_2": candidate_2,
                    "verdict": _verdict(example.answer, its_order),
                    "attributes": example.attributes.to_dict() if example.attributes else None,
                }
            )
        text = self.prompts.render(
            USER,
            turns=turns(question.prompt),
            candidate_1=first,
            candidate_2=second,
            attributes=question.attributes.to_dict() if question.attributes else None,
            demonstrations=demonstrations,
            mark=mark(question.comparison_id, *(d.response_a + d.response_b for d in question.demonstrations)),
        )
        return ({"role": "system", "content": self._system}, {"role": "user", "content": text})

    def result(self, calls: Sequence[ModelCall[JudgeAnswer]], outcomes: Sequence[Outcome[JudgeAnswer]]) -> JudgeResult:
        """The opinion of the votes, or why there is none (see the module)."""
        votes = [
            vote_of(outcome.value, call.order or "AB", call.sample, None if outcome.reused else outcome.seconds)
            for call, outcome in zip(calls, outcomes, strict=True)
            if isinstance(outcome, Answered)
        ]
        failures = [outcome for outcome in outcomes if isinstance(outcome, CallFailure)]
        unasked = next((f for f in failures if not f.was_sent), None)
        passing = next((f for f in failures if f.passing), None)
        if (hindered := unasked or passing) is not None:
            return JudgeFailure(hindered.code, hindered.message)
        seen = {vote.shown_order for vote in votes}
        enough = 2 * len(votes) >= len(calls) and (len(seen) == 2 or not self.settings.both_orders)
        if not votes or not enough:
            (code, _), *_ = Counter(f.code for f in failures).most_common(1)
            return JudgeFailure(code, next(f.message for f in failures if f.code == code))
        return merge_votes(votes, on_split=self.settings.on_split)


def vote_of(answer: JudgeAnswer, order: ShownOrder, sample: int, seconds: float | None = None) -> Vote:
    """In canonical order, whatever order was shown; the reasoning speaks of A and B too."""
    verdict: Answer = {"1": "A", "2": "B"}.get(answer.verdict, answer.verdict)  # type: ignore[assignment]
    return Vote(
        verdict if order == "AB" else swap_answer(verdict),
        order,
        sample,
        answer.confidence,
        _NAMED.sub(lambda m: f"{m[1]} {'AB'[(m[2] == '2') != (order == 'BA')]}", answer.reasoning).strip() or None,
        seconds,
        answer.strength,
    )


def _in_order(a: str, b: str, order: ShownOrder) -> tuple[str, str]:
    return (a, b) if order == "AB" else (b, a)


def _verdict(answer: Answer, order: ShownOrder) -> str:
    displayed = answer if order == "AB" else swap_answer(answer)
    return {"A": "1", "B": "2"}.get(displayed, displayed)
