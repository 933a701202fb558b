"""What a question type is: one way to ask annotators about an item, for every front end and for storage.

An item is asked by one type that decides the judgment, named by `question` in its payload (`pair` by default), and by
those that add to it (`principles`, where the item lists some). Types of items that are no pair (`TASKS`) record labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from assay.annotation.votes import Outcome, preference
from assay.domain import Answer, Fulfilment, PrincipleAnswer, ShownOrder
from assay.registry import Kind

#: The response shown first (on the left, or on top) and the other one.
Position: TypeAlias = Literal["first", "second"]
PAIR, PRINCIPLES = "pair", "principles"
#: Questions on single responses, and on the responses to a prompt.
TASKS = ("rating", "steps", "spans", "ranking")
#: What a vote on an item that is no pair is, unless it was passed on.
ANSWERED: Literal["answered"] = "answered"
#: Reasons to skip that say something of the pair and count as a vote; the others pass the item on.
COUNTED_SKIPS = frozenset({"cannot_decide", "broken"})


@dataclass(frozen=True, slots=True)
class PlacedAnswer:
    """An answer on one principle, of the response at `position`. `evidence`: words of that response, verbatim."""

    position: Position
    principle: str
    answer: Fulfilment
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """What an annotator submits. Responses are named by their position on the screen. `response`: the answer of a
    question type that the other fields do not hold, by its own names."""

    choice: str | None = None
    skip: str | None = None
    strength: int | None = None
    confidence: float | None = None
    rationale: str | None = None
    seconds: float | None = None
    principles: Sequence[PlacedAnswer] = ()
    response: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VoteRecord:
    """What a submission records, in the canonical order of A and B. The rationale of a skip begins with its reason.
    `labels`: of an item that is no pair, as `assay.annotation.item_answers` has them."""

    answer: Answer | Literal["answered"]
    strength: int | None = None
    confidence: float | None = None
    rationale: str | None = None
    principles: tuple[PrincipleAnswer, ...] = ()
    labels: Mapping[str, Sequence[Mapping[str, Any]]] | None = None

    @property
    def counts(self) -> bool:
        """Whether it says something of the item; otherwise the item goes to somebody else."""
        return outcome_of(self.answer, self.rationale) is not None


def outcome_of(answer: Answer | Literal["answered"], rationale: str | None) -> Outcome | None:
    """What a stored vote counts as; None where the annotator passed the item on."""
    if answer == ANSWERED:
        return ANSWERED
    if answer == "skip":
        return "undecided" if (rationale or "").partition(":")[0] in COUNTED_SKIPS else None
    return preference(answer)


class Terminal(Protocol):
    """What a terminal form may do beside taking keys."""

    def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        """One of (key, meaning), by its key; None for any other key."""

    def read_line(self, prompt: str) -> str: ...


class TerminalForm(Protocol):
    """The answer to one item, built key by key. `submission` is None until it is complete."""

    submission: Submission | None

    def keys(self) -> Sequence[tuple[str, str]]:
        """(key, meaning), in the order shown."""

    def notes(self) -> Sequence[str]:
        """What has been set before the decision."""

    def press(self, key: str, terminal: Terminal) -> bool:
        """Take a key; False where it means nothing here."""


class QuestionType(Protocol):
    """`component`: the page's component that asks it."""

    component: ClassVar[str]

    def words(self) -> Mapping[str, Any]:
        """The words and keys that front ends show, as JSON."""

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm | None:
        """A new form for one item, by its payload; None where a terminal cannot ask it."""

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        """Validate a submission on an item and turn it into a judgment, or add to `vote`, that of the deciding type.

        `item`: its payload, with the texts `a` and `b`. Raises BadInputError naming the field.
        """


QUESTION_TYPES: Kind[type[QuestionType]] = Kind(
    "question_type",
    "A way to ask annotators about an item: validation, the judgment of an answer, terminal form, page component.",
    {
        PAIR: "assay_pipelines.annotation.question_types.pair:PairPreference",
        PRINCIPLES: "assay_pipelines.annotation.question_types.principles:PrincipleFulfilment",
        "rating": "assay_pipelines.annotation.question_types.rating:ResponseRating",
        "steps": "assay_pipelines.annotation.question_types.response_parts:StepLabels",
        "spans": "assay_pipelines.annotation.question_types.response_parts:SpanMarking",
        "ranking": "assay_pipelines.annotation.question_types.ranking:ResponseRanking",
    },
    requires=("component", "words", "form", "record"),
    option="--question",
)


@cache
def question_type(name: str) -> QuestionType:
    """The question type of that name. Raises BadInputError for an unknown one."""
    instance: QuestionType = QUESTION_TYPES.create(name)
    return instance


def question_of(item: Mapping[str, Any]) -> str:
    """The name of the type that decides an item's judgment."""
    return str(item.get("question", PAIR))


def record_submission(submission: Submission, item: Mapping[str, Any], order: ShownOrder) -> VoteRecord:
    """Validate a submission by the item's question types. Raises BadInputError naming the field."""
    vote = question_type(question_of(item)).record(submission, item, order, None)
    return question_type(PRINCIPLES).record(submission, item, order, vote) if submission.principles else vote
