"""Prompts that have more tokens than the policy is to read: left out of a run or refused, never cut.

Covers: the check of a run's prompts before it starts, and that of the contexts that a step's plug-ins made of them
(hints make a prompt longer). Leaves out: the length of responses (`sampling.max_new_tokens`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling

NAMED = 5  #: prompts that a message lists
FIELD = "sampling.max_prompt_tokens"


@dataclass(frozen=True)
class LongPrompt:
    """A prompt that is too long. `row`: its place among the prompts, from 1."""

    row: int
    tokens: int
    text: str  #: its start


@dataclass(frozen=True)
class PromptSelection:
    """The prompts that fit, in order, the `longest` one's tokens, and those that do not."""

    items: list[PromptItem]
    too_long: list[LongPrompt]
    limit: int
    longest: int = 0

    def __str__(self) -> str:
        total = len(self.items) + len(self.too_long)
        too_long = ", ".join(f"{long.row} ({long.tokens}: {long.text!r})" for long in self.too_long[:NAMED])
        more = f" and {len(self.too_long) - NAMED} more" if len(self.too_long) > NAMED else ""
        prompts = "prompt" if total == 1 else "prompts"
        verb = "has" if len(self.too_long) == 1 else "have"
        return f"{len(self.too_long)} of {total} {prompts} {verb} more than {self.limit} tokens: {too_long}{more}"


def select_prompts(items: Sequence[PromptItem], renderer: Renderer, sampling: Sampling) -> PromptSelection:
    """The prompts whose contexts have at most `max_prompt_tokens` tokens.

    Raises BadInputError that names those that do not, where `long_prompts` is refuse and where none fits.
    """
    limit, selection = sampling.max_prompt_tokens, PromptSelection([], [], sampling.max_prompt_tokens)
    longest = 0
    for row, item in enumerate(items, 1):
        try:
            tokens = context_tokens(item, renderer)
        except BadInputError as error:
            raise BadInputError(f"prompt {row}: {error}", field="prompts") from error
        if tokens <= limit:
            longest = max(longest, tokens)
            selection.items.append(item)
        else:
            selection.too_long.append(LongPrompt(row, tokens, item.prompt[-1].text[:40]))
    if selection.too_long and (sampling.long_prompts == "refuse" or not selection.items):
        raise BadInputError(str(selection), field=FIELD)
    return replace(selection, longest=longest)


def context_tokens(item: PromptItem, renderer: Renderer) -> int:
    """Tokens of the longer one of the contexts of generation and of training."""
    contexts = [item.generation_context]
    contexts += [item.training_context] if item.training_context != item.generation_context else []
    return max(map(renderer.count, contexts))


def too_long(item: PromptItem, renderer: Renderer) -> ScoreFailure | None:
    """Why a rollout of this item gets no reward: its context was cut, and the reward would read what the policy did
    not."""
    tokens = context_tokens(item, renderer)
    if tokens <= renderer.max_length:
        return None
    message = f"the prompt in its context has {tokens} tokens, more than {renderer.max_length}"
    return ScoreFailure("bad_input", message, FIELD)
