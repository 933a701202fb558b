"""What a user may change of how a model's conversations are rendered: its template, the template's variables, a system
turn. Leaves out: rendering (`renderer`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay.domain import Message
from assay.errors import BadInputError

#: Variables that the renderer itself sets.
RESERVED = ("messages", "tools", "add_generation_prompt", "date_string", "bos_token", "eos_token")


@dataclass(frozen=True)
class ChatOptions:
    """`template`: Jinja text instead of the tokenizer's. `kwargs`: variables of the template, such as
    `enable_thinking`. `system`: the first turn of a conversation that has no system turn of its own."""

    template: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None

    def __post_init__(self) -> None:
        if reserved := sorted(self.kwargs.keys() & set(RESERVED)):
            raise BadInputError("is set by the renderer itself", field=f"chat.kwargs.{reserved[0]}")

    def check(self, template: str) -> None:
        """Raises BadInputError for a variable that the template does not read."""
        for name in self.kwargs:
            if not re.search(rf"\b{re.escape(name)}\b", template):
                raise BadInputError("the chat template has no such variable", field=f"chat.kwargs.{name}")

    def with_system(self, messages: Sequence[Message]) -> list[Message]:
        """The conversation as the template receives it."""
        if self.system is None or (messages and messages[0].role in ("system", "developer")):
            return list(messages)
        return [Message("system", self.system), *messages]

    @property
    def identity(self) -> tuple[str, ...]:
        """What of these options shapes the tokens beyond the template; empty where nothing is changed."""
        chosen = {name: value for name, value in asdict(self).items() if name != "template" and value}
        return (json.dumps(chosen, sort_keys=True),) if chosen else ()
