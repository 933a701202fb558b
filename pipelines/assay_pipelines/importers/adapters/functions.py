"""What path expressions can call beside JMESPath's functions: texts by a pattern, turns of two lists, pairs of lists.

Each takes values as they stand in a record and raises RowError for others, so that the record is rejected.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations, product
from typing import Any

from jmespath import functions

from assay.data.conversation import text_of
from assay.data.json_lines import RowError


class RecordFunctions(functions.Functions):
    """The functions of a path expression."""

    @functions.signature({"types": []}, {"types": ["string"]})
    def _func_match(self, text: Any, pattern: str) -> dict[str, str] | None:
        """`matched`, the whole text, and the named groups of a regular expression; null where it has another form."""
        match = _compiled(pattern).fullmatch(text) if isinstance(text, str) else None
        return {"matched": match[0], **match.groupdict()} if match is not None else None

    @functions.signature({"types": []}, {"types": []})
    def _func_interleaved(self, answers: Any, questions: Any) -> list[str]:
        """The texts of two lists in turns, a question before its answer."""
        answers, questions = _list(answers), _list(questions)
        if len(answers) != len(questions):
            raise RowError("not one answer for each turn of the prompt")
        return [text_of(text, "") for turn in zip(questions, answers, strict=True) for text in turn]

    @functions.signature({"types": []}, {"types": []})
    def _func_product(self, first: Any, second: Any) -> list[dict[str, Any]]:
        """`first` and `second` of each pair of two lists, and their `places` in the two joined."""
        first, second = _list(first), _list(second)
        places = product(range(len(first)), range(len(first), len(first) + len(second)))
        return _pairs([*first, *second], places, tie=False)

    @functions.signature({"types": []})
    def _func_combinations(self, entries: Any) -> list[dict[str, Any]]:
        """The pairs within one list, in the form of `product`; `tie` is true."""
        entries = _list(entries)
        return _pairs(entries, combinations(range(len(entries)), 2), tie=True)

    @functions.signature({"types": []}, {"types": []})
    def _func_at(self, entries: Any, places: Any) -> list[Any] | None:
        """The entries of a list at these places; null where it has none of that number."""
        if not isinstance(entries, list) or max(places, default=0) >= len(entries):
            return None
        return [entries[place] for place in places]


def _pairs(entries: list[Any], places: Any, *, tie: bool) -> list[dict[str, Any]]:
    return [{"first": entries[i], "second": entries[j], "places": [i, j], "tie": tie} for i, j in places]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise RowError("missing" if value is None else "empty" if value == [] else "wrong type: not a list")
    return value


_compiled = cache(re.compile)
