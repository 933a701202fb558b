"""The domain types of preference data: messages, prompts, responses, comparisons, judgments, decisions.

Covers: immutable value types and their content-hash identities (the canonical forms live in `assay.ids`).
Leaves out: storage (`assay.store`), scores (`assay.score`), rendering to tokens (`assay.models.chat.renderer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from assay import ids
from assay.errors import BadInputError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)

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
class Message:
    """One turn of a conversation."""

    role: Role
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise BadInputError(f"unknown role {self.role!r}; one of {', '.join(ROLES)}", field="role")

    def to_dict(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


#: A conversation that ends before the assistant's turn.
Prompt: TypeAlias = tuple[Message, ...]


def prompt_of(messages: list[dict[str, str]] | tuple[dict[str, str], ...]) -> Prompt:
    """Build a prompt from role/content dictionaries. Raises BadInputError on a wrong shape."""
    turns = []
    for number, message in enumerate(messages, start=1):
        try:
            turns.append(Message(role=message["role"], content=message["content"]))  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise BadInputError(f"message {number} needs 'role' and 'content'", field="prompt") from error
    return tuple(turns)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prompt and two responses, unordered in identity: swapping the two gives the same comparison.

    `response_a`/`response_b` are held in canonical order (the lower response id first), so that A and B mean
    the same to every annotator whatever order they were shown in.
    """

    prompt: Prompt
    response_a: str
    response_b: str

    @classmethod
    def of(cls, prompt: Prompt, first: str, second: str) -> tuple[Comparison, bool]:
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
class PrincipleAnswer:
    """What an annotator said, with their judgment of the pair, of one response and one principle."""

    response: Literal["A", "B"]  #: in the comparison's canonical order
    principle: str  #: the statement
    answer: Fulfilment
    evidence: str | None = None  #: the span of the response that supports it, word for word


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """One training or evaluation row: a comparison with its label resolved to chosen/rejected.

    Only objectives that ask for them see rows that are not plainly decided (`assay_rm_training.data.pair_labels`).
    """

    prompt: Prompt
    chosen: str
    rejected: str
    comparison_id: str = ""
    margin: float | None = None  #: strength of the preference where the label carries one
    weight: float = 1.0
    source: str = ""
    category: str = ""
    preference: float = 1.0  #: P(chosen wins), where annotators were split
    tie: bool = False  #: the label prefers neither: chosen and rejected are in no order
