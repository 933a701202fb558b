"""A language model as judge, behind any OpenAI-compatible chat endpoint.

Which candidate comes first is drawn by a hash of comparison, seed and sample, so that a repeated run sends the same
bytes; later samples alternate. With `both_orders` every sample is asked both ways, with the same demonstrations.

An answer needs at least half of the requested votes, and one in each order with `both_orders`. Where the others failed
for good (refused, unreadable) the opinion is based on the rest; where they failed temporarily (time-outs, rate limits,
the budget) the question has failed, and a later run pays only for the missing votes.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge
from pydantic import Field, WithJsonSchema, field_validator

from assay.annotation.verdict_wording import verdict_of_wording
from assay.domain import AnnotatorKind, Answer, Response, ShownOrder, response_text, swap_answer
from assay.errors import BadInputError
from assay.ids import fraction
from assay.settings import check_settings
from assay.workspace import Workspace
from assay_pipelines.judging.judge import JudgeFailure, JudgeResult, OnResult, Vote
from assay_pipelines.judging.merging import OnSplit, merge_votes
from assay_pipelines.judging.profiled import ProfiledQuestions
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.calls import CallLog
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import Answered, CallFailure, ModelCall, ModelCaller, Outcome
from assay_pipelines.llm.images import content_of, images_of
from assay_pipelines.llm.prompts import GUIDELINE, Prompts, mark, turns
from assay_pipelines.llm.questions import Question, orders
from assay_pipelines.llm.replies import StrictAnswer
from assay_serving.generative.templates import format_named

SYSTEM, USER = "judge.system.md", "judge.user.md"
TASK = "judge"
_NAMED = re.compile(r"\b(candidate|response) ([12])\b", re.IGNORECASE)
_VERDICTS = {"first": "1", "second": "2", "tie": "tie", "both_good": "both_good", "both_bad": "both_bad"}
DEMONSTRATIONS = 8  #: at most, as in Skywork-Reward-V2


class JudgeAnswer(StrictAnswer):
    reasoning: str
    verdict: Literal["1", "2", "tie", "both_good", "both_bad"]
    strength: Annotated[Literal[0, 1, 2, 3] | None, WithJsonSchema({"enum": [0, 1, 2, 3], "type": "integer"})]
    confidence: Annotated[float | None, Field(ge=0, le=1), WithJsonSchema({"type": "number"})]

    @field_validator("verdict", mode="before")
    @classmethod
    def _in_words(cls, verdict: object) -> object:
        """ "Candidate 2 is better" is 2."""
        worded = verdict_of_wording(verdict) if isinstance(verdict, str) and verdict not in _VERDICTS.values() else None
        return verdict if worded is None else _VERDICTS[worded]

    @classmethod
    def of_prose(cls, text: str) -> Self | None:
        """A verdict in the judge's own words, which state neither strength nor confidence."""
        if (verdict := verdict_of_wording(text)) is None:
            return None
        return cls.model_validate(
            {"reasoning": text.strip(), "verdict": _VERDICTS[verdict], "strength": None, "confidence": None}
        )


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
    profile: str | None = None  #: judge profile, by name or YAML file: asked and read as it was trained, not in JSON

    def __post_init__(self) -> None:
        check_settings(self)
        if self.samples > 1 and self.endpoint.temperature == 0:
            raise BadInputError(
                f"{self.samples} samples at temperature 0 are one answer paid {self.samples} times; set a temperature",
                field="samples",
            )
        if self.profile is not None and self.prompts is not None:
            raise BadInputError("a judge profile has prompts of its own", field="prompts")
        if "@" in self.name:
            raise BadInputError("must not hold an @: what follows it is the version", field="name")


class LlmJudge:
    """See the module. `workspace` keeps the record of its calls."""

    kind: AnnotatorKind = "llm"
    most_demonstrations = DEMONSTRATIONS

    def __init__(self, config: LlmJudgeConfig, workspace: Workspace) -> None:
        self.settings, self.workspace = config, workspace
        self.prompts = Prompts(config.prompts)
        self.profile: ProfiledQuestions | None = None
        if config.profile is not None:
            self.profile = ProfiledQuestions(
                format_named(config.profile), config.samples, config.seed, both_orders=config.both_orders
            )
        self.prompt_hash = self.profile.form.hash if self.profile else self.prompts.hash(SYSTEM, USER, GUIDELINE)
        self.endpoint = ModelCaller(config.endpoint, self.prompts, workspace.media)
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
            **({"profile": self.profile.form.name} if self.profile else {}),
        }

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        """Without a budget and a run; see `judge_within`."""
        self.judge_within(questions, on_result, spending=Spending(), run_id=None)

    def judge_within(
        self, questions: Sequence[Question], on_result: OnResult, *, spending: Spending, run_id: str | None
    ) -> str | None:
        """As `asking.SpendingJudge`. Raises BackendError where the endpoint refuses every call alike."""
        readable = []
        for index, question in enumerate(questions):
            if (reason := self._unreadable(question)) is not None:
                on_result(index, JudgeFailure("images", reason))
            else:
                readable.append(index)
        items = [self.calls(questions[index]) for index in readable]

        def finish(index: int, outcomes: Sequence[Outcome[JudgeAnswer]]) -> None:
            on_result(readable[index], self.result(items[index], outcomes))

        with CallLog(self.workspace, annotator_of(self).id) as log:
            return self.endpoint.ask_all(items, finish, log=log, spending=spending, run_id=run_id)

    def _unreadable(self, question: Question) -> str | None:
        """Why the images of a comparison cannot be shown; None where they can, or where there are none."""
        images = images_of(_conversations(question))
        if images and not self.settings.endpoint.images:
            return "the comparison has images, and this judge reads text (images: true of its endpoint sends them)"
        for image in images:
            if image.content_hash is None:
                return f"an image was never fetched: {image.url} (assay data import --fetch-images)"
            if self.workspace.media.find(image.content_hash) is None:
                return f"image {image.content_hash} is not in the workspace; `assay doctor` names such images"
        return None

    def calls(self, question: Question) -> list[ModelCall[Any]]:
        s = self.settings
        if self.profile:
            return self.profile.calls(TASK, question)
        return [
            ModelCall(
                TASK, question.comparison_id, self.messages(question, order, n), JudgeAnswer, self.prompt_hash, order, n
            )
            for n in range(s.samples)
            for order in orders(question.comparison_id, n, s.seed, both=s.both_orders)
        ]

    def messages(self, question: Question, order: ShownOrder, sample: int) -> tuple[Mapping[str, Any], ...]:
        first, second = _in_order(question.response_a, question.response_b, order)
        demonstrations = []
        shown = question.demonstrations
        for number, example in enumerate(shown[:DEMONSTRATIONS]):
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
            mark=mark(question.comparison_id, *("".join(_in_order(d.response_a, d.response_b, "AB")) for d in shown)),
        )
        content = content_of(text, images_of(_conversations(question)) if self.settings.endpoint.images else ())
        return ({"role": "system", "content": self._system}, {"role": "user", "content": content})

    def result(self, calls: Sequence[ModelCall[Any]], outcomes: Sequence[Outcome[Any]]) -> JudgeResult:
        """The opinion of the votes, or why there is none (see the module)."""
        votes = self.profile.votes(calls, outcomes) if self.profile else votes_of(calls, outcomes)
        failures = [outcome for outcome in outcomes if isinstance(outcome, CallFailure)]
        unasked = next((f for f in failures if not f.was_sent), None)
        passing = next((f for f in failures if f.passing), None)
        if (hindered := unasked or passing) is not None:
            return JudgeFailure(hindered.code, hindered.message)
        seen = {vote.shown_order for vote in votes}
        asked_both = self.settings.both_orders and not (self.profile and self.profile.by_response)
        enough = 2 * len(votes) >= len({(call.order, call.sample) for call in calls})
        enough = enough and (len(seen) == 2 or not asked_both)
        if not votes or not enough:
            (code, _), *_ = Counter(f.code for f in failures).most_common(1)
            return JudgeFailure(code, next(f.message for f in failures if f.code == code))
        return merge_votes(votes, on_split=self.settings.on_split)


def votes_of(calls: Sequence[ModelCall[Any]], outcomes: Sequence[Outcome[Any]]) -> list[Vote]:
    """Of the calls that were answered."""
    return [
        vote_of(outcome.value, call.order or "AB", call.sample, None if outcome.reused else outcome.seconds)
        for call, outcome in zip(calls, outcomes, strict=True)
        if isinstance(outcome, Answered)
    ]


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


def _conversations(question: Question) -> tuple[Response, Response, Response]:
    return question.prompt, question.response_a, question.response_b


def _in_order(a: Response, b: Response, order: ShownOrder) -> tuple[str, str]:
    """As the judge reads them: tool calls written out."""
    first, second = response_text(a), response_text(b)
    return (first, second) if order == "AB" else (second, first)


def _verdict(answer: Answer, order: ShownOrder) -> str:
    displayed = answer if order == "AB" else swap_answer(answer)
    return {"A": "1", "B": "2"}.get(displayed, displayed)
