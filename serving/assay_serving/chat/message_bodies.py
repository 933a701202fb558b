"""Messages in requests' bodies, in the forms that people write them in, as the domain's messages.

Covers: contents of parts, tool calls, tool results, thoughts, the request's tools. Leaves out: how each form is read
(`assay.data.message_forms`), whether a model's chat template has a place for it (`assay.models.chat.renderer`).
Addresses and paths of images are never opened.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from assay.data.conversation import row_turns, turns_of
from assay.data.json_lines import RowError
from assay.data.message_forms import PART_TYPES
from assay.domain import Message, Prompt, Response, Role, prompt_of
from assay.domain import response_of as response_of_forms
from assay.errors import BadInputError
from assay.http.body_lists import ListOf

_TEXT_ONLY = {"role", "content"}
_TYPE = WithJsonSchema({"type": "string", "enum": list(PART_TYPES)})

#: The tools that the assistant may call.
Tools = ListOf[dict[str, Any]]
TOOLS = "Tools that the assistant may call, as OpenAI or Anthropic define them."


class MessagePartBody(BaseModel):
    """A part of a message, as OpenAI, Anthropic, Hugging Face or Assay write it; its type says which fields it has."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, _TYPE]


class MessageFields(BaseModel):
    """The fields of a message that are read. Raises ValueError (a 422 at its place) for what is no whole message."""

    role: Role | Literal["function"]
    content: str | ListOf[MessagePartBody] | None = None
    name: str | None = Field(None, description="Of a tool's message: the tool.")
    tool_call_id: str | None = None
    tool_calls: ListOf[dict[str, Any]] | None = Field(None, description="As OpenAI writes them.")
    function_call: dict[str, Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        if not self._is_text:
            try:
                self.messages()
            except RowError as error:
                raise ValueError(error.reason) from error
            except BadInputError as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def _is_text(self) -> bool:
        return type(self.content) is str and self.model_fields_set <= _TEXT_ONLY and self.role != "function"

    def messages(self) -> Prompt:
        """Usually one; results of tools beside a user's text are two."""
        if self._is_text:
            return (Message(self.role, self.content),)  # type: ignore[arg-type]
        return prompt_of(turns_of([self.model_dump(exclude_none=True)], "content"))


def _turns_of_response(turns: list[MessageFields]) -> list[MessageFields]:
    if not turns or turns[0].role != "assistant" or turns[-1].role != "assistant":
        raise ValueError("turns of a response begin and end with the assistant's")
    return turns


#: Of a list of messages that is a response.
ResponseTurns = AfterValidator(_turns_of_response)


def messages_of(bodies: list[MessageFields] | list[Any]) -> Prompt:
    return tuple(message for body in bodies for message in body.messages())


def with_tools(prompt: Prompt, tools: list[dict[str, Any]] | None) -> Prompt:
    """The prompt with the request's tools in its first message. Raises BadInputError for a tool without a name."""
    if not tools:
        return prompt
    return prompt_of(row_turns({"tools": tools}, [message.to_dict() for message in prompt]))


def response_of_bodies(response: list[MessageFields] | list[Any]) -> Response:
    """A response from its turns. Raises BadInputError where they are not the assistant's."""
    return response_of_forms([message.to_dict() for message in messages_of(response)])
