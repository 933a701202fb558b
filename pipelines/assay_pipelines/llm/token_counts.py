"""How many tokens a text has for a typical tokenizer, where the model's own is not at hand.

For estimates only. Word pieces as GPT-style pre-tokenizers cut them: a short word, a few digits, a run of punctuation
or white space is a token; longer words are several; of scripts without spaces a character is one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay_pipelines.llm.images import image_tokens, text_of

_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\W\d_A-Za-z]+|\s+|[^\w\s]+|_+")
_LETTERS = 9  #: of a word that is one token
_MESSAGE = 4  #: of a chat template, around each message


def typical_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Of a request's messages."""
    return sum(
        text_tokens(text_of(content := message["content"])) + image_tokens(content) + _MESSAGE for message in messages
    )


def text_tokens(text: str) -> int:
    return sum(_piece_tokens(piece) for piece in _PIECE.findall(text))


def _piece_tokens(piece: str) -> int:
    first = piece[0]
    if first.isspace():
        return int(piece != " ")  # a single space belongs to the word after it
    if first.isdigit():
        return math.ceil(len(piece) / 2)
    if first.isascii():
        return math.ceil(len(piece) / (_LETTERS if first.isalpha() else 3))
    return len(piece) if "\u2e80" <= first <= "\uffdc" else math.ceil(len(piece) / 2)
