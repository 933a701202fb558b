"""An item of a queue: as its creator describes it, as an annotator sees it, and as JSON in both stores."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from assay.data.pair_attributes import PairAttributes
from assay.domain import Prompt, Response, ShownOrder, prompt_of, response_of
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.question_type import PAIR, question_of, question_type

MOST_PRINCIPLES = 20  #: of one item: more than anybody answers with care
LONGEST_PRINCIPLE = 500  #: characters


@dataclass(frozen=True, slots=True)
class ShownOpinion:
    """A judge's opinion of the pair, shown after the vote, never before. `answer` is in canonical A/B."""

    judge: str
    answer: str
    rationale: str = ""


@dataclass(frozen=True, slots=True)
class QueueItem:
    """One comparison to annotate.

    `priority`: higher is asked sooner. `attributes`, `pre_verification` and judges' `opinions`: default what the store
    holds when the item is queued; `opinions` (): none are shown, also after the vote. `guideline`: for this item,
    beside the queue's and the attributes'.
    `pre_verification`: what a judge found of each response, by canonical letter, e.g. {"A": "correct", "B":
    "incorrect: ..."}. `reason`: why it is asked, shown to the annotator. `principles`: asked of both responses.
    `question`: the question type that decides the judgment.
    """

    comparison_id: str
    priority: float = 0.0
    attributes: PairAttributes | None = None
    guideline: str = ""
    pre_verification: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    opinions: tuple[ShownOpinion, ...] | None = None
    principles: tuple[str, ...] = ()
    question: str = PAIR

    def payload(self) -> dict[str, Any]:
        if unknown := set(self.pre_verification) - {"A", "B"}:
            raise BadInputError(f"pre-verification is of A and B, not of {min(unknown)!r}", field="pre_verification")
        payload = {
            "attributes": self.attributes.to_dict() if self.attributes is not None else None,
            "guideline": self.guideline,
            "pre_verification": dict(self.pre_verification),
            "reason": self.reason,
            "opinions": [{"judge": o.judge, "answer": o.answer, "rationale": o.rationale} for o in self.opinions or ()],
            "principles": list(principle_statements(self.principles)),
        }
        if self.question != PAIR:
            question_type(self.question)  # an unknown one is refused here
            payload["question"] = self.question
        return payload


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item as an annotator sees it: `first` and `second` in the order drawn for them, source and label hidden."""

    prompt: Prompt
    first: Response
    second: Response
    attributes: PairAttributes | None
    guideline: str
    pre_verification: tuple[str, str] | None  #: of first and second
    reason: str
    principles: tuple[str, ...] = ()
    question: str = PAIR
    responses: tuple[Response, ...] = ()  #: of an item that is no pair, in the order shown
    settings: Mapping[str, Any] = field(default_factory=dict)  #: of its question

    @property
    def shown_responses(self) -> tuple[Response, ...]:
        """The responses, in the order shown: of a pair, or of an item that is none."""
        return self.responses or (self.first, self.second)

    @classmethod
    def of(cls, payload: Mapping[str, Any], order: ShownOrder) -> "ShownItem":
        """`payload`: the ledger's, which also holds the texts."""
        letters = ("a", "b") if order == "AB" else ("b", "a")
        checked = payload["pre_verification"]
        return cls(
            prompt=prompt_of(payload["messages"]),
            first=response_of(payload[letters[0]]),
            second=response_of(payload[letters[1]]),
            attributes=PairAttributes.of(payload["attributes"]) if payload["attributes"] else None,
            guideline=payload["guideline"],
            pre_verification=(checked.get(letters[0].upper(), ""), checked.get(letters[1].upper(), ""))
            if checked
            else None,
            reason=payload["reason"],
            principles=tuple(payload.get("principles", ())),  # older items lack it
            question=question_of(payload),
            responses=tuple(
                response_of(text if turns is None else turns)
                for text, turns in zip(payload.get("responses", ()), payload.get("turns", repeat(None)), strict=False)
            )[:: 1 if order == "AB" else -1],
            settings=payload.get("settings", {}),
        )


def principle_statements(statements: Iterable[str]) -> tuple[str, ...]:
    """Each once, white space made single spaces. Raises BadInputError for one without words, and for too much."""
    unique = tuple(dict.fromkeys(" ".join(statement.split()) for statement in statements))
    if "" in unique:
        raise BadInputError("a principle without text", field="principles")
    if len(unique) > MOST_PRINCIPLES:
        raise BadInputError(f"at most {MOST_PRINCIPLES} principles to an item, not {len(unique)}", field="principles")
    if any(len(statement) > LONGEST_PRINCIPLE for statement in unique):
        raise BadInputError(f"a principle has at most {LONGEST_PRINCIPLE} characters", field="principles")
    return unique


def shown_opinions(payload: Mapping[str, Any], judges: Collection[str] = ()) -> tuple[ShownOpinion, ...]:
    """`judges`: these alone; none: all."""
    return tuple(
        ShownOpinion(o["judge"], o["answer"], o["rationale"])
        for o in payload["opinions"]
        if not judges or o["judge"] in judges
    )
