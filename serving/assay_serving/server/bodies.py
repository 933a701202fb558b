"""What the native routes take and give, as pydantic models: the outer boundary, from which OpenAPI is made.

Covers: shapes and types. Leaves out: whether a conversation can be scored, which only the model's template knows
and which fails that one item (`assay.score.ScoreFailure`), not the request.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from assay.domain import Message, Prompt, Role
from assay_serving.scorer import ScoreItem


class Body(BaseModel):
    """A misspelt field is an error, not a default."""

    model_config = ConfigDict(extra="forbid")


class MessageBody(Body):
    role: Role
    content: str


class ItemBody(Body):
    prompt: str | list[MessageBody] = Field(description="A text (one user turn) or the messages before the response.")
    response: str
    principle: str | None = Field(None, description="The question to judge by, for models that take one.")

    @model_validator(mode="after")
    def check(self) -> ItemBody:
        if isinstance(self.prompt, list) and not self.prompt:
            raise ValueError("a prompt needs at least one message")
        return self

    def item(self) -> ScoreItem:
        return ScoreItem(prompt_of(self.prompt), self.response, self.principle)


class ScoreBody(Body):
    """Either `items`, or one `prompt` with its `responses`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"items": [{"prompt": "Name a metal.", "response": "Gold."}]},
                {"prompt": [{"role": "user", "content": "Name a metal."}], "responses": ["Gold.", "Glass."]},
            ]
        },
    )

    model: str | None = Field(None, description="Needed only where several models are served.")
    items: list[ItemBody] | None = None
    prompt: str | list[MessageBody] | None = None
    responses: list[str] | None = None
    principle: str | None = None

    @model_validator(mode="after")
    def check(self) -> ScoreBody:
        grouped = (self.prompt, self.responses, self.principle)
        if self.items is not None:
            if any(field is not None for field in grouped):
                raise ValueError("give either items, or prompt and responses")
        elif self.prompt is None or self.responses is None:
            raise ValueError("give items, or prompt and responses")
        elif self.prompt == []:
            raise ValueError("a prompt needs at least one message")
        return self

    def score_items(self) -> list[ScoreItem]:
        if self.items is not None:
            return [item.item() for item in self.items]
        prompt = prompt_of(self.prompt or "")
        return [ScoreItem(prompt, response, self.principle) for response in self.responses or ()]


class FailureBody(BaseModel):
    code: str = Field(description="bad_input, too_long, non_finite, backend")
    message: str
    model: str | None


class ResultBody(BaseModel):
    """A score, or `error` and nothing else: a failed score is never a number."""

    reward: float | None = None
    probability: float | None = None
    uncertainty: float | None = None
    model: str | None = None
    version: str | None = None
    template_hash: str | None = None
    tokens: int | None = None
    truncated: bool | None = None
    principle: str | None = None
    calibration: str | None = Field(None, description="Identity of the calibration that gave the probability.")
    error: FailureBody | None = None


class UsageBody(BaseModel):
    items: int
    failed: int
    tokens: int


class ScoreReply(BaseModel):
    """One result per item (or response), in the order of the request."""

    model: str
    version: str
    results: list[ResultBody]
    usage: UsageBody
    request_id: str | None


class ModelBody(BaseModel):
    """One served model: its name as `id`, and what `assay_serving.scorer.ModelInfo` holds."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str = "model"


class ModelsReply(BaseModel):
    object: str = "list"
    data: list[ModelBody]


class ProblemBody(BaseModel):
    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str | None
    errors: list[dict[str, Any]] | None = None


def prompt_of(prompt: str | list[MessageBody]) -> Prompt:
    """The domain's prompt of either form."""
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    return tuple(Message(message.role, message.content) for message in prompt)
