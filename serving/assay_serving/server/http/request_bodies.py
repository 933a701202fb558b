"""Request bodies of the native routes as pydantic models, from which OpenAPI is generated.

Covers: shapes and types, and the items to score. Leaves out: replies (`replies`); whether a conversation can be scored,
which depends on the model's template and fails only that item (`assay.score.ScoreFailure`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from assay.domain import Message, Prompt, Response
from assay.http.body_lists import ListOf
from assay_serving.chat.message_bodies import (
    TOOLS,
    MessageFields,
    ResponseTurns,
    Tools,
    messages_of,
    response_of_bodies,
    with_tools,
)
from assay_serving.rubrics.rubric import with_rubric
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Priority
from assay_serving.server.http.json_route import examples

_PROMPT = "A text (one user turn) or the messages before the response."
_RESPONSE = "A text, or the turns of the assistant and the tools it called."
_PRINCIPLE = "The question to judge by, for models that take one (/v1/principles)."
_REFERENCES = "Other responses to the prompt, for rewards that are relative to them; models ignore them."
_NONE: Any = ()  #: a default that is a list would be copied for each body
_LABEL = "What a verifier checks against: text, or JSON; models ignore it."
_STEPS = "The response in steps, instead of a text: for process reward models, which score each."
_RUBRIC = "Items that the responses are judged by, for rubric rewards: texts, or {text, weight, polarity, ...}."
_PROMPT_IS_EMPTY = "a prompt needs at least one message"


class Body(BaseModel):
    """A misspelt field is an error, not a default."""

    model_config = ConfigDict(extra="forbid")


class MessageBody(MessageFields, Body):
    """A message: a text, or typed parts and calls of tools."""


PromptBody = str | ListOf[MessageBody]
ResponseBody = str | Annotated[ListOf[MessageBody], ResponseTurns]
LabelBody = str | int | float | list[Any] | dict[str, Any]
RubricItemBody = str | dict[str, Any]


def label_text(label: Any, rubric: Any) -> str | None:
    """As scorers read it: JSON, but for a label that is text."""
    return label if rubric is None and (label is None or isinstance(label, str)) else with_rubric(label, rubric)


class ItemBody(Body):
    """One response: `prompt` and `response` (or `steps`), or the whole conversation as `messages`, the last one the
    assistant's."""

    prompt: PromptBody | None = Field(None, description=_PROMPT)
    response: ResponseBody | None = Field(None, description=_RESPONSE)
    steps: ListOf[str] | None = Field(None, description=_STEPS)
    tools: Tools | None = Field(None, description=TOOLS)
    messages: ListOf[MessageBody] | None = Field(None, description="The conversation, ending with the response.")
    principle: str | None = Field(None, description=_PRINCIPLE)
    references: ListOf[str] = Field(_NONE, description=_REFERENCES)
    label: LabelBody | None = Field(None, description=_LABEL)
    rubric: ListOf[RubricItemBody] | None = Field(None, description=_RUBRIC)

    @model_validator(mode="after")
    def check(self) -> "ItemBody":
        if self.steps is not None and self.response is not None:
            raise ValueError("give either response or steps")
        if self.messages is not None:
            if self.prompt is not None or self.response is not None or self.steps is not None:
                raise ValueError("give either messages, or prompt and response")
            if len(self.messages) < 2 or self.messages[-1].role != "assistant":
                raise ValueError("messages end with the assistant's, after at least one other")
        elif self.prompt is None or (self.response is None and self.steps is None):
            raise ValueError("give prompt and response (or steps), or messages")
        elif not self.prompt and isinstance(self.prompt, list):
            raise ValueError(_PROMPT_IS_EMPTY)
        return self

    def item(self) -> ScoreItem:
        if self.messages is not None:
            *before, last = self.messages
            prompt, response = messages_of(before), response_of_bodies([last])
        else:
            prompt, response = prompt_of(self.prompt or ""), response_of(self.response or "")
        prompt = with_tools(prompt, self.tools) if self.tools else prompt
        label = label_text(self.label, self.rubric)
        references = tuple(self.references)
        if self.steps is not None:
            return replace(ScoreItem.of_steps(prompt, self.steps, self.principle), label=label)
        return ScoreItem(prompt, response, self.principle, label=label, references=references)


class SharedPromptBody(Body):
    """What several responses to one prompt share."""

    prompt: PromptBody = Field(description=_PROMPT)
    tools: Tools | None = Field(None, description=TOOLS)
    principle: str | None = Field(None, description=_PRINCIPLE)
    references: ListOf[str] = Field(_NONE, description=_REFERENCES)
    label: LabelBody | None = Field(None, description=_LABEL)
    rubric: ListOf[RubricItemBody] | None = Field(None, description=_RUBRIC)

    @model_validator(mode="after")
    def check(self) -> Self:
        if not self.prompt and isinstance(self.prompt, list):
            raise ValueError(_PROMPT_IS_EMPTY)
        return self

    def items_of(self, responses: Iterable[ResponseBody]) -> list[ScoreItem]:
        label = label_text(self.label, self.rubric)
        return items_of_prompt(self.prompt, self.tools, responses, self.principle, label, self.references)


class GroupBody(SharedPromptBody):
    """Several responses to one prompt."""

    responses: ListOf[ResponseBody] = Field(min_length=1)

    def items(self) -> list[ScoreItem]:
        return self.items_of(self.responses)


class ScoringBody(Body):
    """Options of every scoring request."""

    model: str | None = Field(None, description="Needed only where several models are served.")
    priority: Literal["interactive", "bulk"] = Field(
        "interactive", description="Interactive requests go before bulk ones of trainers and jobs."
    )
    timeout: float | None = Field(
        None, gt=0, description="Seconds after which the reply is not needed any more; at most the server's own limit."
    )

    @property
    def rank(self) -> Priority:
        return Priority.BULK if self.priority == "bulk" else Priority.INTERACTIVE


class ScoreBody(ScoringBody):
    """Responses to score: as `items`, as `groups`, or as one `prompt` with its `responses`."""

    model_config = examples(
        {"items": [{"prompt": "Name a metal.", "response": "Gold."}]},
        {"prompt": [{"role": "user", "content": "Name a metal."}], "responses": ["Gold.", "Glass."]},
        {
            "groups": [
                {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]},
                {"prompt": "Name a gas.", "responses": ["Neon.", "Iron."], "label": "Neon"},
            ],
            "priority": "bulk",
        },
        {"items": [{"prompt": "What is 2 + 3 * 4?", "steps": ["3 * 4 = 12", "2 + 12 = 14"]}]},
        {
            "prompt": "Name a metal.",
            "responses": ["Gold."],
            "principles": ["The response is short.", "The response is correct."],
        },
    )

    items: ListOf[ItemBody] | None = Field(None, min_length=1)
    groups: ListOf[GroupBody] | None = Field(None, min_length=1)
    prompt: PromptBody | None = Field(None, description=_PROMPT)
    responses: ListOf[ResponseBody] | None = Field(None, min_length=1)
    tools: Tools | None = Field(None, description=TOOLS)
    principle: str | None = Field(None, description=_PRINCIPLE)
    principles: ListOf[str] | None = Field(
        None, min_length=1, description="Several questions: every response is judged by each (`by_principle`)."
    )
    references: ListOf[str] = Field(_NONE, description=_REFERENCES)
    label: LabelBody | None = Field(None, description=_LABEL)
    rubric: ListOf[RubricItemBody] | None = Field(None, description=_RUBRIC)

    @model_validator(mode="after")
    def check(self) -> "ScoreBody":
        one = self.prompt is not None or self.responses is not None
        if (self.items is not None) + (self.groups is not None) + one != 1:
            raise ValueError("give items, or groups, or prompt and responses")
        if one:
            if self.prompt is None or self.responses is None:
                raise ValueError("give items, or groups, or prompt and responses")
            if not self.prompt and isinstance(self.prompt, list):
                raise ValueError(_PROMPT_IS_EMPTY)
        elif any((self.principle is not None, self.references, self.label is not None, self.rubric, self.tools)):
            raise ValueError("principle, references, label, rubric and tools go into each of the items or groups")
        if self.principles is not None:
            parts = self.items or self.groups or ()
            if self.principle is not None or any(part.principle is not None for part in parts):
                raise ValueError("give either principle or principles")
            if len(set(self.principles)) < len(self.principles):
                raise ValueError("a principle is given twice")
        return self

    def score_items(self) -> list[ScoreItem]:
        """The items in order; with `principles`, all of the first principle, then all of the second, ..."""
        if self.items is not None:
            items = [item.item() for item in self.items]
        elif self.groups is not None:
            items = [item for group in self.groups for item in group.items()]
        else:
            responses = self.responses or ()
            label = label_text(self.label, self.rubric)
            items = items_of_prompt(self.prompt or "", self.tools, responses, self.principle, label, self.references)
        if self.principles is None:
            return items
        return [replace(item, principle=principle) for principle in self.principles for item in items]


class PairBody(SharedPromptBody):
    """Two responses to one prompt."""

    a: ResponseBody = Field(description="One response.")
    b: ResponseBody = Field(description="The other response.")

    def items(self) -> list[ScoreItem]:
        return self.items_of((self.a, self.b))


class CompareBody(ScoringBody):
    """Pairs to compare."""

    model_config = examples(
        {"pairs": [{"prompt": "Name a metal.", "a": "Gold.", "b": "Glass."}]},
        {
            "pairs": [
                {"prompt": [{"role": "user", "content": "Name a metal."}], "a": "Gold.", "b": "Glass."},
                {"prompt": "Name a gas.", "a": "Neon.", "b": "Iron.", "principle": "The response is true."},
            ]
        },
    )

    pairs: ListOf[PairBody] = Field(min_length=1)


class RankBody(ScoringBody, GroupBody):
    """Responses to one prompt, to be put in order."""

    model_config = examples({"prompt": "Name a metal.", "responses": ["Glass.", "Gold.", "Glass."]})

    tie_margin: float = Field(0.0, ge=0, description="A reward within this of the best one of its tie shares its rank.")


def prompt_of(prompt: PromptBody) -> Prompt:
    """The domain's prompt of either form."""
    return (Message("user", prompt),) if isinstance(prompt, str) else messages_of(prompt)


def response_of(response: ResponseBody) -> Response:
    """The domain's response of either form."""
    return response if isinstance(response, str) else response_of_bodies(response)


def items_of_prompt(
    prompt: PromptBody,
    tools: Tools | None,
    responses: Iterable[ResponseBody],
    principle: str | None,
    label: str | None,
    references: list[str],
) -> list[ScoreItem]:
    """One item for each response. They share the prompt's object."""
    turns = with_tools(prompt_of(prompt), tools) if tools else prompt_of(prompt)
    shared = ScoreItem(turns, "", principle, label=label, references=tuple(references))
    return [replace(shared, response=response_of(response)) for response in responses]
