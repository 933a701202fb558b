"""Texts of a given length, for rows that stand for data which is not there yet."""

from typing import Any


def text_of(tokenizer: Any, word: str, tokens: int) -> str:
    """`word` so often that it has about so many tokens."""
    each = len(tokenizer(word * 64, add_special_tokens=False)["input_ids"]) / 64
    return word * max(1, round(tokens / each))
