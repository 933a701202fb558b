"""Options of commands that have a policy answer prompts: the form of a conversation, sampling.

Leaves out: what is trained (`training.config`, recipes). Imports nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from annotated_types import Ge, Gt

from assay.errors import BadInputError
from assay.models.chat.options import ChatOptions
from assay.settings import Help, check_settings

if TYPE_CHECKING:
    from assay_policy_training.core.sampling import Sampling


@dataclass(frozen=True)
class ConversationOptions:
    """Raises BadInputError for a variable that is not NAME=VALUE; `template`, `system`: for a file that is no text."""

    chat_template: Annotated[Path | None, Help("Jinja file instead of the model's chat template.")] = None
    chat_kwargs: Annotated[
        tuple[str, ...], Help("Variable of the chat template, e.g. enable_thinking=false.", metavar="NAME=VALUE")
    ] = ()
    system_prompt: Annotated[str | None, Help("System turn of prompts that have none: a text, or @FILE.")] = None
    stop: Annotated[tuple[str, ...], Help("Text that ends a response, which has it; repeatable.", metavar="TEXT")] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        for text in self.chat_kwargs:
            if not all(text.partition("=")[:2]):
                raise BadInputError(f"a variable is given as NAME=VALUE, not {text!r}", field="--chat-kwargs")

    @property
    def template(self) -> str | None:
        return None if self.chat_template is None else _text_of(self.chat_template, "--chat-template")

    @property
    def system(self) -> str | None:
        text = self.system_prompt
        return _text_of(Path(text[1:]), "--system-prompt") if text and text.startswith("@") else text

    @property
    def chat(self) -> ChatOptions:
        variables = (text.partition("=") for text in self.chat_kwargs)
        return ChatOptions(self.template, {name: yaml.safe_load(value) for name, _, value in variables}, self.system)


@dataclass(frozen=True)
class ResponseOptions(ConversationOptions):
    """How many prompts are answered, and how."""

    limit: Annotated[int, Ge(1), Help("Prompts of a source, at most.")] = 1000
    max_new_tokens: Annotated[int, Ge(1), Help("Tokens of a response, at most.")] = 128
    temperature: Annotated[float, Gt(0), Help("Of sampling.")] = 1.0
    seed: Annotated[int, Help("Of sampling, and of generated prompts.")] = 0

    @property
    def sampling(self) -> "Sampling":
        from assay_policy_training.core.sampling import Sampling

        return Sampling(max_new_tokens=self.max_new_tokens, temperature=self.temperature, stop=self.stop)

    def record(self) -> Mapping[str, Any]:
        """JSON-ready: texts of files in their place."""
        return asdict(self) | {"chat_template": self.template, "system_prompt": self.system}


def _text_of(path: Path, option: str) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"cannot be read as text: {error}", file=path, field=option) from error
