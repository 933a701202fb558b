"""Routes of the playground: the models of the reward servers, and scores of one prompt's responses.

Scoring changes nothing, so the POST is not audited.
"""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import AliasPath, BaseModel, Field

from assay.domain import Message, Role
from assay.errors import BadInputError
from assay.score import Score, ScoreResult
from assay_web.access.guard import Viewer
from assay_web.rewards.interval import FromRecord
from assay_web.rewards.served_models import Column, ScoreQuery, ask, offers
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["rewards"])

TEXT = 200_000  #: characters of one text
MOST_SCORES = 512  #: of one question

Text = Annotated[str, Field(max_length=TEXT)]


class OfferedModel(FromRecord):
    """A model that a server offers. `principle_use`: required, optional or refused; `principles`: some that it was
    trained with. `max_length`: tokens. `parity`: whether the saved checkpoint gave the trainer's scores."""

    name: str = Field(validation_alias=AliasPath("info", "name"))
    version: str = Field(validation_alias=AliasPath("info", "version"))
    kind: str = Field(validation_alias=AliasPath("info", "kind"))
    max_length: int = Field(validation_alias=AliasPath("info", "max_length"))
    calibrated: bool = Field(validation_alias=AliasPath("info", "calibrated"))
    parity: str = Field(validation_alias=AliasPath("info", "parity"))
    principle_use: str = Field(validation_alias=AliasPath("principles", "use"))
    principle_question: str | None = Field(validation_alias=AliasPath("principles", "question"))
    principles: list[str] = Field(validation_alias=AliasPath("principles", "examples"))


class RewardServerOffer(FromRecord):
    """One reward server by its address. `error`: why it offers nothing now."""

    address: str
    error: str | None
    models: list[OfferedModel]


class ServedModels(BaseModel):
    """Every reward server that the web server was started with, or that was started from the page and runs."""

    servers: list[RewardServerOffer]


class Turn(RequestBody):
    """One message of the prompt."""

    role: Role
    content: Text


class ModelChoice(RequestBody):
    """A model by its server's address and its name there."""

    address: str
    model: str


class PlaygroundQuestion(RequestBody):
    """A conversation before the assistant's turn and responses to it. `label`: what verifiers check against."""

    prompt: Annotated[list[Turn], Field(min_length=1, max_length=200)]
    responses: Annotated[list[Text], Field(min_length=1, max_length=64)]
    models: Annotated[list[ModelChoice], Field(min_length=1, max_length=16)]
    principles: list[Annotated[str, Field(min_length=1, max_length=2_000)]] = Field([], max_length=16)
    label: Text | None = None


class PlaygroundPart(FromRecord):
    """A part of a composed reward. `value`: after its shaping. `skipped`: why it was not evaluated; `failed`: why a
    rubric's item has no grade; `gate`: that this item decided the reward."""

    name: str
    reward: float | None
    value: float | None
    weight: float | None
    skipped: str | None
    failed: str | None
    gate: str | None


class PlaygroundScore(FromRecord):
    """What a model says of a response: a reward with all that belongs to it, or `failure` with its code and no number.
    `rank`: 1 is the best; equal ranks are ties."""

    rank: int | None = None
    reward: float | None = None
    probability: float | None = None
    uncertainty: float | None = None
    tokens: int | None = None
    truncated: bool | None = None
    calibration: str | None = None
    parts: list[PlaygroundPart] = Field(default=[])
    coverage: float | None = None  #: of a rubric: share of its items that have a grade
    code: str | None = None
    failure: str | None = None


class PlaygroundColumn(FromRecord):
    """One model's answers, by one principle or none, in the order of the responses; `refused`: why it was not asked.
    `best_beats_second`: P(the best is preferred to the second), which rests on `basis`."""

    address: str
    model: str
    version: str | None = Field(None, validation_alias=AliasPath("info", "version"))
    principle: str | None
    refused: str | None
    scores: list[PlaygroundScore]
    best_beats_second: float | None
    basis: Literal["calibration", "bradley_terry"] | None


class ResponseStanding(BaseModel):
    """How often a response was ranked best and worst, of the columns that rank it among others. A tie for a place
    counts for each of those that share it; where all are tied, for none."""

    best: int
    worst: int
    columns: int


class PlaygroundReply(BaseModel):
    """`standings`: one a response."""

    columns: list[PlaygroundColumn]
    standings: list[ResponseStanding]


@router.get("/api/rewards/served")
def list_served_models(person: Viewer, service: ServiceNow) -> ServedModels:
    """What the reward servers offer now."""
    return ServedModels(servers=[RewardServerOffer.model_validate(one) for one in offers(service.reward_servers)])


@router.post("/api/rewards/playground")
def score_in_playground(person: Viewer, service: ServiceNow, body: PlaygroundQuestion) -> PlaygroundReply:
    """Scores of the responses by each model, side by side."""
    requested = len(body.responses) * len(body.models) * max(1, len(body.principles))
    if requested > MOST_SCORES:
        raise BadInputError(f"at most {MOST_SCORES} scores at once, not {requested}: fewer responses or principles")
    question = ScoreQuery(
        tuple(Message(turn.role, turn.content) for turn in body.prompt),
        tuple(body.responses),
        tuple(dict.fromkeys(body.principles)),
        body.label or None,
    )
    choices = list(dict.fromkeys((choice.address, choice.model) for choice in body.models))
    columns = ask(service.reward_servers, choices, question)
    return PlaygroundReply(
        columns=[_column(column, len(question.responses)) for column in columns],
        standings=[_standing(columns, index) for index in range(len(question.responses))],
    )


def _column(column: Column, responses: int) -> PlaygroundColumn:
    ranking = column.ranking
    scores = [_score(ranking.results[n], ranking.ranks[n]) for n in range(responses)] if ranking else []
    return PlaygroundColumn.of(**vars(column), scores=scores)


def _score(result: ScoreResult, rank: int | None) -> PlaygroundScore:
    if not isinstance(result, Score):
        return PlaygroundScore(code=result.code, failure=result.message)
    return PlaygroundScore.model_validate(result).model_copy(update={"rank": rank})


def _standing(columns: list[Column], index: int) -> ResponseStanding:
    best = worst = ranked = 0
    for column in columns:
        ranks = column.ranking.ranks if column.ranking else ()
        ranked_responses = [rank for rank in ranks if rank is not None]
        if len(ranked_responses) < 2 or ranks[index] is None:
            continue
        ranked += 1
        if min(ranked_responses) < max(ranked_responses):
            best += ranks[index] == min(ranked_responses)
            worst += ranks[index] == max(ranked_responses)
    return ResponseStanding(best=best, worst=worst, columns=ranked)
