"""Parsers of judges' replies, described as data: where the verdict stands, and what it means.

Covers: verdicts found by a pattern or in a JSON object, preferences with ties and strengths, class labels, scores on a
range, scores of several responses. Leaves out: prompts (`profile`), which profile a reply looks like (`recognition`).

Thinking is not searched: what stands before the last `</think>`, or after a `<think>` that is not closed, decides
nothing. A reply in which nothing is found,
that states a score out of its range, or that was cut by the length limit has no verdict: a typed failure.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from assay.errors import BadInputError
from assay.settings import check_settings
from assay_serving.generative.verdict import JudgeVerdict, ParseFailure

#: What a stated text means: a preference, perhaps with its strength, or the number of a class.
Meaning: TypeAlias = float | str | tuple[str, int]
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL)
_THINKS_ON = re.compile(r"^\s*<think(?:ing)?>", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_ANSWERS = ("A", "B", "tie")


@dataclass(frozen=True)
class ReplyParser:
    """`pattern`: a regular expression whose groups hold the verdict; `json`: instead, the fields of a JSON object that
    hold it. Either `values` (what each stated text means) or `range` (the scores that are allowed).

    `take`: of several matches the last, the first, or `only`: all must say the same, else the reply has several
    verdicts. `window`: only so many last characters are searched; 0: all. `integer`: scores are whole numbers.
    """

    pattern: str = ""
    json: tuple[str, ...] = ()
    values: Mapping[str, Meaning] = field(default_factory=dict)
    range: tuple[float, float] | None = None
    take: Literal["last", "first", "only"] = "last"
    window: int = 0
    integer: bool = False
    ignore_case: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
        if bool(self.pattern) == bool(self.json):
            raise BadInputError("give either pattern or json", field="reads")
        if bool(self.values) == (self.range is not None):
            raise BadInputError("give either values or range", field="reads")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise BadInputError(f"not a regular expression: {error}", field="reads.pattern") from error
        if self.pattern and not groups:
            raise BadInputError("has no group that holds the verdict", field="reads.pattern")

    @property
    def classes(self) -> dict[str, float]:
        """Labels of one response and their numbers; empty for preferences and scores."""
        return {text: meaning for text, meaning in self.values.items() if isinstance(meaning, int | float)}

    def labels(self, responses: int) -> tuple[str, ...]:
        """The labels that verdicts can have, the better end first; empty where they are any number of a range."""
        if self.range is not None:
            if responses > 1:
                return _ANSWERS
            low, high = self.range
            return tuple(str(n) for n in range(int(high), int(low) - 1, -1)) if self.integer else ()
        if classes := self.classes:
            return tuple(sorted(classes, key=lambda label: -classes[label]))
        preferences = [meaning for meaning in self.values.values() if isinstance(meaning, str | tuple)]
        answers = {meaning if isinstance(meaning, str) else meaning[0] for meaning in preferences}
        return tuple(answer for answer in _ANSWERS if answer in answers)

    def read(
        self, text: str, responses: int, *, ended: bool = True, listed: bool = False
    ) -> JudgeVerdict | ParseFailure:
        """The verdict of a complete reply on so many responses. `ended`: the judge ended its turn itself. `listed`: the
        score of each is wanted, not which is better."""
        if not ended:
            return ParseFailure("truncated")
        if not text.strip():
            return ParseFailure("empty")
        thought = _THOUGHT.match(text)
        start = thought.end() if thought else 0
        if (thinks_on := _THINKS_ON.search(text, start)) is not None:
            text = text[: thinks_on.start()]  # it never came to an end of that
        start = max(start, len(text.rstrip()) - self.window) if self.window else start
        stated = self._stated_json(text, start) if self.json else self._stated(text, start)
        if not stated:
            return ParseFailure("no_verdict")
        if self.take == "only" and len({words for _, words in stated}) > 1:
            return ParseFailure("several")
        at, words = stated[0] if self.take == "first" else stated[-1]
        if self.range is None:
            return self._valued(words, at)
        return self._scored(words, responses, at, listed=listed)

    def _stated(self, text: str, start: int) -> list[tuple[int, tuple[str, ...]]]:
        """(where it begins, the groups that matched) of every match."""
        flags = (re.IGNORECASE if self.ignore_case else 0) | re.MULTILINE
        matches = re.compile(self.pattern, flags).finditer(text[start:])
        return [(start + m.start(), tuple(group.strip() for group in m.groups() if group is not None)) for m in matches]

    def _stated_json(self, text: str, start: int) -> list[tuple[int, tuple[str, ...]]]:
        decoder, stated = json.JSONDecoder(), []
        position = text.find("{", start)
        while position >= 0:
            try:
                parsed, end = decoder.raw_decode(text, position)
            except (ValueError, RecursionError):
                end = position + 1
            else:
                if isinstance(parsed, dict) and all(_is_plain(parsed.get(name)) for name in self.json):
                    stated.append((position, tuple(str(parsed[name]).strip() for name in self.json)))
            position = text.find("{", end)
        return stated

    def _valued(self, words: tuple[str, ...], at: int) -> JudgeVerdict | ParseFailure:
        word = words[0]
        label = next((v for v in self.values if v == word or (self.ignore_case and v.lower() == word.lower())), None)
        if label is None:
            return ParseFailure("unknown_label")
        meaning = self.values[label]
        if isinstance(meaning, int | float):
            return JudgeVerdict(label, at, float(meaning))
        answer, strength = (meaning, None) if isinstance(meaning, str) else meaning
        return JudgeVerdict(answer, at, strength=strength)

    def _scored(self, words: tuple[str, ...], responses: int, at: int, *, listed: bool) -> JudgeVerdict | ParseFailure:
        assert self.range is not None
        pieces = [piece.strip() for word in words for piece in word.split(",")]
        if len(pieces) != responses or not all(_NUMBER.fullmatch(piece) for piece in pieces):
            return ParseFailure("unknown_label")
        scores = [float(piece) for piece in pieces]
        low, high = self.range
        if any(not low <= score <= high or (self.integer and score != int(score)) for score in scores):
            return ParseFailure("unknown_label")
        if responses == 1 and not listed:
            return JudgeVerdict(f"{scores[0]:g}", at, scores[0])
        if listed:
            return JudgeVerdict(", ".join(f"{score:g}" for score in scores), at, values=tuple(scores))
        first, second = scores
        return JudgeVerdict("A" if first > second else "B" if second > first else "tie", at)


def parser_of(settings: Mapping[str, Any], responses: int) -> ReplyParser:
    """From the `reads` of a profile's file. Raises BadInputError that names the field."""
    fields = ", ".join(ReplyParser.__dataclass_fields__)
    if not isinstance(settings, Mapping):
        raise BadInputError(f"must be a mapping of {fields}", field="reads")
    if unknown := sorted(set(map(str, settings)) - set(ReplyParser.__dataclass_fields__)):
        raise BadInputError(f"must be a mapping of {fields}", field=f"reads.{unknown[0]}")
    arguments = dict(settings)
    listed = arguments.get("json", ())
    if not isinstance(listed, str | list | tuple) or not all(isinstance(name, str) for name in listed):
        raise BadInputError("must be the name of a field, or a list of names", field="reads.json")
    arguments["json"] = (listed,) if isinstance(listed, str) else tuple(listed)
    if "range" in arguments:
        arguments["range"] = _range(arguments["range"])
    if "values" in arguments:
        values = arguments["values"]
        if not isinstance(values, Mapping):
            raise BadInputError("must be a mapping of stated texts to what they mean", field="reads.values")
        if any(isinstance(text, bool) for text in values):  # YAML reads yes, no, on and off so
            raise BadInputError("put yes, no, on, off, true and false in quotes", field="reads.values")
        arguments["values"] = {str(text): _meaning(stated, responses) for text, stated in values.items()}
    return ReplyParser(**arguments)


def _range(listed: Any) -> tuple[float, float]:
    if not (isinstance(listed, list) and len(listed) == 2 and all(isinstance(n, int | float) for n in listed)):
        raise BadInputError("must be the least and the greatest score", field="reads.range")
    low, high = float(listed[0]), float(listed[1])
    if low >= high:
        raise BadInputError("the least score comes first", field="reads.range")
    return low, high


def _meaning(stated: Any, responses: int) -> Meaning:
    """A number for one response; A, B or tie for two, or [A, strength]."""
    if responses == 1:
        if isinstance(stated, bool) or not isinstance(stated, int | float):
            raise BadInputError("of one response, each means a number", field="reads.values")
        return float(stated)
    answer, *strength = stated if isinstance(stated, list) else [stated]
    if answer not in _ANSWERS or len(strength) > 1 or any(number not in (0, 1, 2, 3) for number in strength):
        raise BadInputError("of two responses, each means A, B or tie, or [A, strength 0 to 3]", field="reads.values")
    return (str(answer), int(strength[0])) if strength else str(answer)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
