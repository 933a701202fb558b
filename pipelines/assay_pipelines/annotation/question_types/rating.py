"""Rating one response: a number on each of the item's scales, or "cannot say"."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.domain import ShownOrder
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.item_form import ItemForm, answered, passed_on
from assay_pipelines.annotation.question_types.question_type import Submission, Terminal, TerminalForm, VoteRecord


@dataclass(frozen=True, slots=True)
class AnnotationScale:
    """What is rated, from `low` to `high`."""

    aspect: str
    low: int = 1
    high: int = 5

    @classmethod
    def parse(cls, text: str) -> "AnnotationScale":
        """`helpfulness`, or `helpfulness:0-4`. Raises BadInputError."""
        aspect, colon, ends = text.rpartition(":")
        if not colon:
            aspect, ends = text, "1-5"
        low, dash, high = ends.partition("-")
        if not (dash and low.isdecimal() and high.isdecimal() and int(low) < int(high) and aspect.strip()):
            raise BadInputError(f"{text!r} is no scale: NAME or NAME:LOW-HIGH", field="rate")
        return cls(aspect.strip(), int(low), int(high))


class ResponseRating:
    """`settings.scales` of the item: aspect, low, high. Each is answered with a number, or null."""

    component: ClassVar[str] = "ResponseRating"

    def words(self) -> Mapping[str, Any]:
        return {"unknown": "cannot say"}

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm | None:
        return None if item is None else _RatingForm(item["settings"]["scales"])

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        if (skipped := passed_on(submission)) is not None:
            return skipped
        values = submission.response.get("ratings")
        scales = item["settings"]["scales"]
        if not isinstance(values, Mapping) or set(values) != {scale["aspect"] for scale in scales}:
            raise BadInputError(
                f"ratings are of {', '.join(scale['aspect'] for scale in scales)}, one each", field="response"
            )
        ratings = []
        for scale in scales:
            number = values[scale["aspect"]]
            if number is not None:
                if isinstance(number, bool) or not isinstance(number, int | float):
                    raise BadInputError(f"{scale['aspect']}: not a number", field="response")
                if not scale["low"] <= number <= scale["high"]:
                    raise BadInputError(
                        f"{scale['aspect']}: {number:g} is not from {scale['low']} to {scale['high']}", field="response"
                    )
            ratings.append({"response_id": item["response_ids"][0], **scale, "value": number})
        return answered(submission, ratings=ratings)


class _RatingForm(ItemForm):
    """One aspect after the other."""

    def __init__(self, scales: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._scales = scales
        self._values: list[float | None] = []

    def own_keys(self) -> Sequence[tuple[str, str]]:
        scale = self._scales[len(self._values)] if len(self._values) < len(self._scales) else self._scales[-1]
        keys = "n" if scale["high"] > 9 else f"{scale['low']}-{scale['high']}"
        return [(keys, scale["aspect"]), ("-", "cannot say")]

    def own_notes(self) -> Sequence[str]:
        pairs = zip(self._scales, self._values, strict=False)
        return [f"{scale['aspect']}: {'cannot say' if number is None else f'{number:g}'}" for scale, number in pairs]

    def take(self, key: str, terminal: Terminal) -> bool:
        if key == "z":
            self._values = self._values[:-1]
            return True
        scale = self._scales[len(self._values)]
        text = terminal.read_line(f"{scale['aspect']}, {scale['low']} to {scale['high']}: ") if key == "n" else key
        if text == "-":
            self._values.append(None)
        elif text.isdecimal() and scale["low"] <= int(text) <= scale["high"]:
            self._values.append(float(text))
        else:
            return False
        if len(self._values) == len(self._scales):
            pairs = zip(self._scales, self._values, strict=True)
            self.submit({"ratings": {scale["aspect"]: number for scale, number in pairs}})
            self._values = self._values[:-1]  # a form that was not stored goes on before the last answer
        return True
