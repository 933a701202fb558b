"""The domain types of preference data: prompts, responses, comparisons, judgments, decisions.

Covers: immutable value types and their content-hash identities (the canonical forms live in `assay.ids`); messages,
prompts and responses are those of `assay.conversation`. Leaves out: storage (`assay.store`), scores (`assay.score`),
rendering to tokens (`assay.models.chat.renderer`).
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from assay import ids
from assay.conversation.message import ROLES as ROLES
from assay.conversation.message import Message as Message
from assay.conversation.message import Prompt as Prompt
from assay.conversation.message import Response as Response
from assay.conversation.message import Role as Role
from assay.conversation.message import prompt_of as prompt_of
from assay.conversation.message import response_of as response_of
from assay.conversation.message import response_text as response_text

#: What an annotator can say of one comparison. A and B refer to the comparison's canonical order.
Answer: TypeAlias = Literal["A", "B", "tie", "both_good", "both_bad", "skip"]
ANSWERS: tuple[str, ...] = get_args(Answer)
#: Which response was shown first, in the canonical order.
ShownOrder: TypeAlias = Literal["AB", "BA"]
TIES: frozenset[str] = frozenset({"tie", "both_good", "both_bad"})
#: Whether a response fulfils a principle.
Fulfilment: TypeAlias = Literal["yes", "no", "partially"]
FULFILMENTS: tuple[str, ...] = get_args(Fulfilment)

AnnotatorKind: TypeAlias = Literal["source", "human", "llm", "reward_model", "verifier", "simulated"]
Pool: TypeAlias = Literal["gold", "silver", "discarded", "recycled", "pending"]


def swap_answer(answer: Answer) -> Answer:
    """The same opinion once A and B have changed places."""
    if answer == "A":
        return "B"
    if answer == "B":
        return "A"
    return answer


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prompt and two responses, unordered in identity: swapping the two gives the same comparison.

    `response_a`/`response_b` are held in canonical order (the lower response id first), so that A and B mean
    the same to every annotator whatever order they were shown in.
    """

    prompt: Prompt
    response_a: Response
    response_b: Response

    @classmethod
    def of(cls, prompt: Prompt, first: Response, second: Response) -> "tuple[Comparison, bool]":
        """The canonical comparison, and whether `first` became B (True = the two were swapped)."""
        pid = ids.prompt_id(prompt)
        swapped = ids.response_id(pid, first) > ids.response_id(pid, second)
        return (cls(prompt, second, first), True) if swapped else (cls(prompt, first, second), False)

    @property
    def prompt_id(self) -> str:
        return ids.prompt_id(self.prompt)

    @property
    def id(self) -> str:
        pid = self.prompt_id
        return ids.comparison_id(pid, ids.response_id(pid, self.response_a), ids.response_id(pid, self.response_b))


@dataclass(frozen=True, slots=True)
class Judgment:
    """What one annotator said of one comparison."""

    comparison_id: str
    annotator_id: str
    answer: Answer
    strength: int | None = None  #: 0 (barely) to 3 (far better); None = not asked
    confidence: float | None = None  #: annotator's own, 0 to 1
    rationale: str | None = None
    shown_order: ShownOrder | None = None
    seconds: float | None = None  #: time the annotator spent
    origin: str = ""  #: tells apart repeated judgments by one annotator (a sample number, a session); part of the id

    @property
    def id(self) -> str:
        return ids.judgment_id(self.comparison_id, self.annotator_id, self.answer, self.strength, self.origin)

    def to_dict(self) -> dict[str, Any]:
        """Its fields. They hold nothing that `dataclasses.asdict` need copy, at a tenth of what a vote costs."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class ResponseJudgment:
    """What one annotator said of one response in a number: a rating, a binary label, a recorded score."""

    response_id: str
    annotator_id: str
    aspect: str  #: what was asked
    value: float | None  #: None: looked and could not say
    low: float | None = None  #: the ends of the scale; None: unbounded or unknown
    high: float | None = None
    rationale: str | None = None
    seconds: float | None = None
    origin: str = ""  #: as `Judgment.origin`

    @property
    def id(self) -> str:
        return ids.response_judgment_id(self.response_id, self.annotator_id, self.aspect, self.value, self.origin)


@dataclass(frozen=True, slots=True)
class StepJudgment:
    """What one annotator said of a part of one response: of a step, or of a span."""

    response_id: str
    annotator_id: str
    start: int  #: in characters of the response
    end: int  #: not included
    step: int | None = None  #: 0 = the first; None: a span
    label: str | None = None  #: what a span is
    value: float | None = None  #: 1 correct, 0 neutral, -1 wrong; or a probability
    low: float | None = None
    high: float | None = None
    rationale: str | None = None
    seconds: float | None = None
    origin: str = ""

    @property
    def id(self) -> str:
        return ids.step_judgment_id(
            self.response_id, self.annotator_id, self.step, self.start, self.end, self.label, self.value, self.origin
        )


@dataclass(frozen=True, slots=True)
class PrincipleAnswer:
    """What an annotator said, with their judgment of the pair, of one response and one principle."""

    response: Literal["A", "B"]  #: in the comparison's canonical order
    principle: str  #: the statement
    answer: Fulfilment
    evidence: str | None = None  #: the span of the response that supports it, word for word


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """One training or evaluation row: a comparison with its label resolved to chosen/rejected.

    Only objectives that ask for them see rows that are not plainly decided (`assay_rm_training.data.pair_dataset`).
    """

    prompt: Prompt
    chosen: Response
    rejected: Response
    comparison_id: str = ""
    margin: float | None = None  #: strength of the preference where the label carries one
    weight: float = 1.0
    source: str = ""
    category: str = ""
    preference: float = 1.0  #: P(chosen wins), where annotators were split
    tie: bool = False  #: the label prefers neither: chosen and rejected are in no order
