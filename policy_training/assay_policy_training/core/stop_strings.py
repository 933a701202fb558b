"""Texts that end a response, found in the tokens as they come.

A row ends with the token that completes one of them: the text is in the response, with whatever else that token holds,
and each of its tokens was drawn. Special tokens are read as text. The same rule cuts what an engine returns, so that
all samplers give the same rows. Leaves out: texts that are part of a prompt.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class StopStrings:
    """Reads the end of rows. False where there are no texts."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> None:
        self.tokenizer, self.texts = tokenizer, tuple(texts)
        # A token holds at least a byte; the first of the tail may be the end of a character.
        self.tail = max((len(text.encode()) for text in texts), default=0) + 4

    def __bool__(self) -> bool:
        return bool(self.texts)

    def reached(self, tokens: Sequence[int]) -> bool:
        """Whether the row's last tokens contain a text; asked after every token, whether the last one completes it."""
        text = self.tokenizer.decode(
            list(tokens[-self.tail :]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return any(stop in text for stop in self.texts)

    def length(self, tokens: Sequence[int]) -> int:
        """Tokens up to the first that completes a text; all of them where none does."""
        return next((end for end in range(1, len(tokens) + 1) if self and self.reached(tokens[:end])), len(tokens))
