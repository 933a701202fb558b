"""A pairwise generative reward model as judge: both orders, its reasoning kept as the rationale of each vote."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay.domain import AnnotatorKind
from assay.score import ScoreFailure
from assay_pipelines.judging.judge import JudgeFailure, JudgeResult, OnResult, Opinion, Vote
from assay_pipelines.llm.questions import Question
from assay_serving.generative.engine import unparsable
from assay_serving.generative.pairwise import PairOutcome, PairQuestion, PairwiseJudge
from assay_serving.generative.profiles.recognition import UnreadReplies

PAGE = 8  #: comparisons judged before their results are handed on


@dataclass(frozen=True)
class GenerativeJudge:
    """A vote for each readable answer; the answer is by both orders' probability, a tie where they are even."""

    pairwise: PairwiseJudge
    kind: AnnotatorKind = "reward_model"
    replies: UnreadReplies = field(default_factory=UnreadReplies, compare=False)  #: all so far

    @property
    def name(self) -> str:
        return f"{self.pairwise.info.name}@{self.pairwise.info.version}"

    @property
    def config(self) -> Mapping[str, Any]:
        return asdict(self.pairwise.judging)

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        for start in range(0, len(questions), PAGE):
            page = questions[start : start + PAGE]
            outcomes = self.pairwise.compare([PairQuestion(q.prompt, q.response_a, q.response_b) for q in page])
            for index, outcome in enumerate(outcomes, start=start):
                on_result(index, self._result(outcome))

    def _result(self, outcome: PairOutcome | ScoreFailure) -> JudgeResult:
        if isinstance(outcome, ScoreFailure):
            return JudgeFailure(outcome.code, outcome.message)
        self.replies.add(answer for order in outcome.orders for answer in order.answers)
        votes = tuple(
            Vote(
                verdict,
                "AB" if order.order == (0, 1) else "BA",
                sample,
                rationale=answer.reasoning or None,
                strength=answer.strength,
            )
            for order in outcome.orders
            for sample, (verdict, answer) in enumerate(zip(order.votes, order.answers, strict=True))
            if verdict is not None
        )
        decision = outcome.decision
        if decision is None:
            answers = [answer for order in outcome.orders for answer in order.answers]
            return JudgeFailure("bad_answer", unparsable(answers, self.name).message)
        p = outcome.probability
        confidence = None if p is None else max(p, 1 - p)
        rationale = next((vote.rationale for vote in votes if vote.answer == decision), None)
        return Opinion(decision, confidence, votes, rationale)
