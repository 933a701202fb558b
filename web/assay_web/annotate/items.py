"""JSON forms of an item, a vote and a receipt: what an annotator's browser gets before a vote, and what only after it.

Before a vote nothing says which response the source or a judge preferred (but where the queue shows suggestions), what
others voted, whether the item is a gold check, or which comparison it is. The responses come in the order that the
service drew and recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from assay.browsing.messages import ShownMessage, shown_messages, shown_turns
from assay.domain import Fulfilment, PrincipleAnswer, ShownOrder, response_text
from assay_pipelines.annotation.answer_match import in_words
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import LONGEST_PRINCIPLE, MOST_PRINCIPLES, ShownOpinion, shown_opinions
from assay_pipelines.annotation.own_answers import OwnAnswer
from assay_pipelines.annotation.question_types.pair import Choice, PlacedChoice, SkipReason, placed
from assay_pipelines.annotation.question_types.question_type import (
    ANSWERED,
    PlacedAnswer,
    Position,
    Submission,
    question_type,
)
from assay_pipelines.annotation.service import Receipt
from assay_pipelines.annotation.votes import QueueVote, Role
from assay_web.server.request_body import RequestBody


class ShownAttributes(BaseModel):
    """What is known of the comparison: see `assay attributes`."""

    task_category: str
    objectivity: str
    controversiality: str
    desired: str
    guideline: str


class ShownChecks(BaseModel):
    """What was found of each response before; "" for nothing."""

    first: str
    second: str


class RevealedAnswer(BaseModel):
    """Another annotator's answer on one response and principle. `place`: on the reader's own screen."""

    place: Position
    principle: str
    answer: Fulfilment
    evidence: str | None


class RevealedOpinion(BaseModel):
    """The opinion of a judge or another annotator, with answers on principles. `answer`: of an item that is no pair, in
    words."""

    by: str
    said: PlacedChoice | Literal["answered"]
    answer: str = ""
    strength: int | None = None
    rationale: str = ""
    principles: list[RevealedAnswer] = []


class AnnotationItem(BaseModel):
    """The item before an annotator. `ticket` names it in a vote; `seal` proves that the vote is about these texts.
    `question`: the question type that decides it; `component`: the page's component that asks it. `responses`,
    `settings`: of an item that is no pair, which has all its texts there. `turns`: of each response, a pair's too, in
    the order shown, null for one that is nothing but its text. `principles`: asked of both responses too.
    `expires_at`: seconds since the epoch, when others may have it unless it is renewed. `number`: of the item in its
    queue, for a link to it. `suggestions`: judges' answers that are shown before the vote, where the queue says so; the
    vote's record says that they were."""

    ticket: str
    number: int
    seal: str
    role: Role
    prompt: list[ShownMessage]
    first: str
    second: str
    turns: list[list[ShownMessage] | None]
    attributes: ShownAttributes | None
    guideline: str
    checked: ShownChecks | None
    reason: str
    principles: list[str]
    expires_at: float
    question: str
    component: str
    responses: list[str] = []
    settings: dict[str, JsonValue] = {}
    suggestions: list[RevealedOpinion] = []


class QuestionTypeReply(BaseModel):
    """`component`: the page's component that asks it. `words`: words and keys, in a form of the type's own."""

    name: str
    component: str
    words: dict[str, JsonValue]


class PrincipleBody(RequestBody):
    """Whether the response at a place fulfils one of the item's principles. `evidence`: words of that response that
    show it, exactly as its source has them."""

    place: Position
    principle: Annotated[str, Field(max_length=LONGEST_PRINCIPLE)]
    answer: Fulfilment
    evidence: Annotated[str, Field(max_length=20_000)] | None = None

    def placed(self) -> PlacedAnswer:
        return PlacedAnswer(self.place, self.principle, self.answer, self.evidence or None)


class VoteBody(RequestBody):
    """A vote, or a skip with its reason. The same body again is acknowledged again and counted once. `person`: whose
    vote it is; it may have waited in a browser at which somebody else has signed in since. `seconds`: spent on the
    item. `principles`: answers on some or all of the item's; none with a skip that passes it on. `response`: the answer
    of a question type that the other fields do not hold. `guideline_version`: that was on the screen."""

    person: Annotated[str, Field(max_length=100)]
    ticket: Annotated[str, Field(max_length=60)]
    seal: Annotated[str, Field(max_length=60)]
    choice: Choice | None = None
    skip: SkipReason | None = None
    strength: Annotated[int, Field(ge=0, le=3)] | None = None
    rationale: Annotated[str, Field(max_length=20_000)] = ""
    seconds: Annotated[float, Field(ge=0, le=86_400)] | None = None
    principles: list[PrincipleBody] = Field([], max_length=2 * MOST_PRINCIPLES)
    response: dict[str, JsonValue] | None = None
    guideline_version: Annotated[int, Field(ge=1)] | None = None

    def submission(self) -> Submission:
        return Submission(
            choice=self.choice,
            skip=self.skip,
            strength=self.strength,
            rationale=self.rationale.strip() or None,
            seconds=self.seconds,
            principles=[answer.placed() for answer in self.principles],
            response=self.response or {},
        )


class OwnAnswerReply(BaseModel):
    """An answer of one's own that stands. `item`: its number in the queue. `answer`: of an item that is no pair, in
    words. `skip`: the reason of a skip. `changes`: how often it was changed before. `notes`: one's own on the item."""

    ticket: str
    item: int
    excerpt: str
    question: str
    said: PlacedChoice | Literal["answered"]
    answer: str
    skip: str
    strength: int | None
    rationale: str
    seconds: float | None
    at: float
    changes: int
    notes: int
    guideline_version: int | None


class ReceiptReply(BaseModel):
    """A durable vote. `repeated`: it had been cast already. `opinions` of judges, for those who may read records;
    `votes` of others, for those who adjudicate."""

    ticket: str
    said: PlacedChoice | Literal["answered"]
    repeated: bool
    opinions: list[RevealedOpinion]
    votes: list[RevealedOpinion]


def item_reply(assignment: Assignment, judges: Sequence[str] = ()) -> AnnotationItem:
    """`judges`: whose suggestions are shown, where some are; none: all of them."""
    shown = shown_opinions(assignment.payload, judges) if assignment.suggestion == "before" else ()
    content, checked = assignment.content, assignment.content.pre_verification
    return AnnotationItem(
        ticket=assignment.ticket,
        number=int(assignment.ticket.partition("-")[0]),
        seal=assignment.seal,
        role=assignment.role,
        prompt=shown_messages(content.prompt),
        first=response_text(content.first),
        second=response_text(content.second),
        turns=[shown_turns(response) for response in content.shown_responses],
        attributes=ShownAttributes(**content.attributes.to_dict()) if content.attributes is not None else None,
        guideline=content.guideline,
        checked=ShownChecks(first=checked[0], second=checked[1]) if checked is not None else None,
        reason=content.reason,
        principles=list(content.principles),
        expires_at=assignment.expires_at,
        question=content.question,
        component=question_type(content.question).component,
        responses=[response_text(response) for response in content.responses],
        settings=dict(content.settings),
        suggestions=_placed_opinions(shown, assignment.shown_order),
    )


def answer_reply(answer: OwnAnswer) -> OwnAnswerReply:
    vote = answer.vote
    order = vote.shown_order or "AB"
    skipped, _, words = (vote.rationale or "").partition(": ") if vote.answer == "skip" else ("", "", "")
    return OwnAnswerReply(
        ticket=answer.ticket,
        item=answer.item,
        excerpt=answer.excerpt,
        question=answer.question,
        said=ANSWERED if vote.answer == ANSWERED else placed(vote.answer, order),
        answer=in_words(vote.labels, answer.response_ids) if vote.labels else "",
        skip=skipped,
        strength=vote.strength,
        rationale=words if skipped else vote.rationale or "",
        seconds=vote.seconds,
        at=vote.at,
        changes=answer.changes,
        notes=answer.notes,
        guideline_version=vote.guideline,
    )


def _placed_opinions(opinions: Sequence[ShownOpinion], order: ShownOrder) -> list[RevealedOpinion]:
    return [RevealedOpinion(by=o.judge, said=placed(o.answer, order), rationale=o.rationale) for o in opinions]


def receipt_reply(receipt: Receipt, opinions: Sequence[ShownOpinion], votes: list[RevealedOpinion]) -> ReceiptReply:
    order = receipt.assignment.shown_order
    return ReceiptReply(
        ticket=receipt.assignment.ticket,
        said=ANSWERED if receipt.answer == ANSWERED else placed(receipt.answer, order),
        repeated=receipt.repeated,
        opinions=_placed_opinions(opinions, order),
        votes=votes,
    )


def vote_replies(
    votes: Sequence[QueueVote], principles: Mapping[str, Sequence[PrincipleAnswer]], assignment: Assignment
) -> list[RevealedOpinion]:
    """`principles`: by judgment id."""
    order = assignment.shown_order
    return [
        RevealedOpinion(
            by=v.annotator,
            said=ANSWERED if v.answer == ANSWERED else placed(v.answer, order),
            answer=in_words(v.labels, assignment.response_ids) if v.labels else "",
            strength=v.strength,
            rationale=v.rationale or "",
            principles=[
                RevealedAnswer(
                    place="first" if answer.response == order[0] else "second",
                    principle=answer.principle,
                    answer=answer.answer,
                    evidence=answer.evidence,
                )
                for answer in principles.get(v.judgment_id, ())
            ],
        )
        for v in votes
    ]
