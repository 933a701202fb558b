"""An item on its way to a person's browser and back: what is sent before a vote, and what only after it.

Before a vote nobody is told which responses the source or a judge preferred, what others said, whether it is a gold
check, or which comparison it is. The responses come in the order that the desk drew and recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from assay.domain import Fulfilment, Message, PrincipleAnswer, ShownOrder
from assay.errors import ConflictError
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import LONGEST_PRINCIPLE, MOST_PRINCIPLES, Choice, draw
from assay_pipelines.annotation.principle_votes import Place, PlacedAnswer
from assay_pipelines.annotation.service import Receipt
from assay_pipelines.annotation.votes import QueueVote, Role
from assay_web.server.request_body import RequestBody

#: What somebody said, by the place of the responses on the reader's own screen.
Said: TypeAlias = Literal["first", "second", "tie", "both_good", "both_bad", "skip"]
SkipReason: TypeAlias = Literal["cannot_decide", "broken", "not_for_me", "later"]
_PLACES: dict[tuple[str, str], Said] = {
    ("A", "AB"): "first",
    ("B", "AB"): "second",
    ("A", "BA"): "second",
    ("B", "BA"): "first",
}


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


class SittingItem(BaseModel):
    """What a person has before them. `ticket` names it in a vote; `seal` proves that the vote is about these texts.
    `principles`: asked of both responses beside the preference. `expires_at`: seconds since the epoch, when others may
    have it unless it is renewed."""

    ticket: str
    seal: str
    role: Role
    prompt: list[Message]
    first: str
    second: str
    attributes: ShownAttributes | None
    guideline: str
    checked: ShownChecks | None
    reason: str
    principles: list[str]
    expires_at: float


class PrincipleBody(RequestBody):
    """Whether the response at a place fulfils one of the item's principles. `evidence`: words of that response that
    show it, exactly as its source has them."""

    place: Place
    principle: Annotated[str, Field(max_length=LONGEST_PRINCIPLE)]
    answer: Fulfilment
    evidence: Annotated[str, Field(max_length=20_000)] | None = None

    def placed(self) -> PlacedAnswer:
        return PlacedAnswer(self.place, self.principle, self.answer, self.evidence or None)


class VoteBody(RequestBody):
    """A vote, or a skip with its reason. The same body again is acknowledged again and counted once. `person`: whose
    vote it is; it may have waited in a browser at which somebody else has signed in since. `seconds`: spent on the
    item. `principles`: answers on some or all of the item's; none with a skip that passes it on."""

    person: Annotated[str, Field(max_length=100)]
    ticket: Annotated[str, Field(max_length=60)]
    seal: Annotated[str, Field(max_length=60)]
    choice: Choice | None = None
    skip: SkipReason | None = None
    strength: Annotated[int, Field(ge=0, le=3)] | None = None
    rationale: Annotated[str, Field(max_length=20_000)] = ""
    seconds: Annotated[float, Field(ge=0, le=86_400)] | None = None
    principles: list[PrincipleBody] = Field([], max_length=2 * MOST_PRINCIPLES)


class RevealedAnswer(BaseModel):
    """What another annotator said of one response and principle. `place`: on the reader's own screen."""

    place: Place
    principle: str
    answer: Fulfilment
    evidence: str | None


class RevealedOpinion(BaseModel):
    """What a judge, or another annotator, said of the pair, and with it of principles."""

    by: str
    said: Said
    strength: int | None = None
    rationale: str = ""
    principles: list[RevealedAnswer] = []


class ReceiptReply(BaseModel):
    """A durable vote. `repeated`: it had been cast already. `opinions` of judges; `votes` of others, for those who
    adjudicate."""

    ticket: str
    said: Said
    repeated: bool
    opinions: list[RevealedOpinion]
    votes: list[RevealedOpinion]


def item_reply(assignment: Assignment) -> SittingItem:
    content, checked = assignment.shown, assignment.shown.pre_verification
    return SittingItem(
        ticket=assignment.ticket,
        seal=seal_of(assignment),
        role=assignment.role,
        prompt=list(content.prompt),
        first=content.first,
        second=content.second,
        attributes=ShownAttributes(**content.attributes.to_dict()) if content.attributes is not None else None,
        guideline=content.guideline,
        checked=ShownChecks(first=checked[0], second=checked[1]) if checked is not None else None,
        reason=content.reason,
        principles=list(content.principles),
        expires_at=assignment.expires_at,
    )


def seal_of(assignment: Assignment) -> str:
    """A vote may wait in a browser while the operational file is made anew, or another workspace is served at the same
    address; its ticket could then name another item."""
    return draw("seal", assignment.ticket, assignment.annotator, assignment.comparison_id, assignment.shown_order)[:16]


def check_seal(assignment: Assignment, seal: str, queue: str) -> None:
    """Raises ConflictError for a vote about other texts than the ticket's."""
    if seal != seal_of(assignment) or queue != assignment.queue:
        raise ConflictError("this vote is about an item that is not here: of another workspace, or made anew since")


def receipt_reply(assignment: Assignment, receipt: Receipt, votes: list[RevealedOpinion]) -> ReceiptReply:
    order = assignment.shown_order
    return ReceiptReply(
        ticket=assignment.ticket,
        said=placed(receipt.answer, order),
        repeated=receipt.repeated,
        opinions=[
            RevealedOpinion(by=o.judge, said=placed(o.answer, order), rationale=o.rationale) for o in receipt.opinions
        ],
        votes=votes,
    )


def vote_replies(
    votes: Sequence[QueueVote], principles: Mapping[str, Sequence[PrincipleAnswer]], order: ShownOrder
) -> list[RevealedOpinion]:
    """`principles`: by judgment id."""
    return [
        RevealedOpinion(
            by=v.annotator,
            said=placed(v.answer, order),
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


def placed(answer: str, order: ShownOrder) -> Said:
    """A canonical answer by the places on the screen."""
    if (answer, order) in _PLACES:
        return _PLACES[answer, order]
    ties: dict[str, Said] = {"tie": "tie", "both_good": "both_good", "both_bad": "both_bad"}
    return ties.get(answer, "skip")
