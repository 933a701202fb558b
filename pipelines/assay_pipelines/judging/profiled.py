"""Questions to a judge that was trained elsewhere, and its votes, by its judge profile.

Covers: pairs in one or both orders; for a profile that reads one response, each response by itself, the one with the
higher score winning. Leaves out: profiles (`assay_serving.generative.profiles`), calls and merging
(`openai_compatible`).

Demonstrations and attributes are not shown: the judge was trained without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from assay.domain import Answer, Response, ShownOrder, swap_answer
from assay_pipelines.judging.judge import Vote
from assay_pipelines.llm.endpoint import Answered, ModelCall, Outcome
from assay_pipelines.llm.questions import Question, orders
from assay_pipelines.llm.replies import StrictAnswer
from assay_serving.generative.templates import JudgeFormat
from assay_serving.generative.verdict import JudgeVerdict

SHOWN = 120  #: characters of an unreadable reply that its failure shows


class ProfiledAnswer(StrictAnswer):
    """What the profile's parser read. `label`: A, B or tie of a pair; `value`: the number of one response."""

    uncut: ClassVar[bool] = True
    label: str
    value: float | None
    strength: int | None
    reasoning: str


@dataclass
class ProfiledQuestions:
    """`by_response`: the profile reads one response, so that there is no order to ask in."""

    form: JudgeFormat
    samples: int = 1
    seed: int = 0
    both_orders: bool = False

    @property
    def by_response(self) -> bool:
        return self.form.responses == 1

    @cached_property
    def kind(self) -> type[ProfiledAnswer]:
        """The answers that this profile reads."""
        form = self.form

        class Answers(ProfiledAnswer):
            @classmethod
            def of_reply(cls, text: str) -> Self:
                verdict = form.read(text)
                if not isinstance(verdict, JudgeVerdict):
                    raise ValueError(f"{verdict.fault} by judge profile {form.name}; it ends {text.strip()[-SHOWN:]!r}")
                before = text[: verdict.line_start].strip()
                return cls(label=verdict.label, value=verdict.value, strength=verdict.strength, reasoning=before)

        return Answers

    def calls(self, task: str, question: Question) -> list[ModelCall[Any]]:
        """In order of samples; of a profile that reads one response, two for each sample: of A, then of B."""
        a, b = question.response_a, question.response_b
        questions: list[tuple[ShownOrder | None, int, tuple[Response, ...]]]
        if self.by_response:
            questions = [(None, n, (response,)) for n in range(self.samples) for response in (a, b)]
        else:
            questions = [
                (order, n, (a, b) if order == "AB" else (b, a))
                for n in range(self.samples)
                for order in orders(question.comparison_id, n, self.seed, both=self.both_orders)
            ]
        return [
            ModelCall(
                task, question.comparison_id, self._messages(question, responses), self.kind, self.form.hash, order, n
            )
            for order, n, responses in questions
        ]

    def _messages(self, question: Question, responses: Sequence[Response]) -> tuple[dict[str, Any], ...]:
        return tuple(message.to_dict() for message in self.form.ask(question.prompt, responses))

    def votes(self, calls: Sequence[ModelCall[Any]], outcomes: Sequence[Outcome[Any]]) -> list[Vote]:
        """Of the calls that were answered; by scores of a sample of which both were."""
        if self.by_response:
            pairs = zip(calls[::2], outcomes[::2], outcomes[1::2], strict=True)
            return [
                _by_scores(call.sample, a, b)
                for call, a, b in pairs
                if isinstance(a, Answered) and isinstance(b, Answered)
            ]
        return [
            _in_order(outcome, call.order or "AB", call.sample)
            for call, outcome in zip(calls, outcomes, strict=True)
            if isinstance(outcome, Answered)
        ]


def _in_order(outcome: Answered[Any], order: ShownOrder, sample: int) -> Vote:
    answer: Answer = outcome.value.label
    return Vote(
        answer if order == "AB" else swap_answer(answer),
        order,
        sample,
        rationale=outcome.value.reasoning or None,
        seconds=None if outcome.reused else outcome.seconds,
        strength=outcome.value.strength,
    )


def _by_scores(sample: int, a: Answered[Any], b: Answered[Any]) -> Vote:
    first, second = a.value.value, b.value.value
    answer: Answer = "A" if first > second else "B" if second > first else "tie"
    stated = f"A: {a.value.label}, B: {b.value.label}"
    reasons = [f"{name}: {one.value.reasoning}" for name, one in (("A", a), ("B", b)) if one.value.reasoning]
    seconds = None if a.reused or b.reused else a.seconds + b.seconds
    return Vote(answer, None, sample, rationale="\n\n".join([stated, *reasons]), seconds=seconds)
