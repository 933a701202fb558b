"""The interface of everything that scores: items in, one result per item out, in order.

Covers: the item, the description of a model, the protocols of engines and of the remote client. Leaves out: computing
scores (`engines`), serving them (`server`, `client`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.domain import Prompt, Response, response_text
from assay.errors import BadInputError
from assay.models.contamination import BenchmarkUse, uses_from
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult

if TYPE_CHECKING:
    from assay.models.chat.rendered_text import PolicyTemplate

UNLIMITED = 1 << 30  #: tokens: nothing is cut


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation that the caller has rendered with a chat template: its text, or its token ids.

    `add_special_tokens`: whether the tokenizer puts its own beginning before a text that does not have it.
    `complete`: a finished last turn whose closing white space was not sent gets it, as this model was trained with it.
    `keep`: of a longer conversation only so many tokens are read, the last ones or (not `keep_end`) the first; -1 = the
    model's own limit; None = one that is too long is a failure.
    """

    text: str = ""
    ids: tuple[int, ...] = ()
    add_special_tokens: bool = False
    complete: bool = False
    keep: int | None = None
    keep_end: bool = True


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """One response to be scored. `principle`: the question to judge by, for models that take one.

    `rendered` stands for prompt and response, which are then empty. `label`: what a verifier checks against.
    `references`: other responses to the prompt, for rewards that are relative to them. Models ignore both. `steps`: the
    response in the steps that a process reward model reads, instead of where its own separator cuts the text.
    """

    prompt: Prompt
    response: Response
    principle: str | None = None
    rendered: Rendered | None = None
    label: str | None = None
    references: tuple[str, ...] = ()
    steps: tuple[str, ...] | None = None

    @classmethod
    def of_steps(cls, prompt: Prompt, steps: Sequence[str], principle: str | None = None) -> "ScoreItem":
        """The response that these steps are, with an empty line between them in its text. Raises BadInputError for
        steps that are one text, which would be scored letter by letter, or no texts."""
        if isinstance(steps, str) or not all(isinstance(step, str) for step in steps):
            raise BadInputError("must be a list of texts", field="steps")
        return cls(prompt, "\n\n".join(steps), principle, steps=tuple(steps))

    @property
    def characters(self) -> int:
        """Length of all its text: the bound of queues and requests before tokens are counted."""
        size = sum(len(m.text) for m in self.prompt) + len(response_text(self.response)) + len(self.principle or "")
        if self.rendered is not None:
            size += len(self.rendered.text) + 4 * len(self.rendered.ids)
        return size + sum(map(len, self.references)) + len(self.label or "")


#: Kinds of models whose rewards depend on the conversation alone.
TAKES_NO_PRINCIPLE = ("scalar", "implicit")
#: Kinds whose rewards depend on the item's label.
READS_LABEL = ("verifier", "composed", "rubric")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The description of a scorer: everything needed to interpret and reproduce its scores. The defaults are those of
    a program without a checkpoint, template or device."""

    name: str
    version: str  #: content hash of the checkpoint
    kind: str = "scalar"  #: or "principle", "generative", "implicit"
    template_hash: str = ""
    max_length: int = UNLIMITED  #: tokens; longer conversations lose their oldest turns
    calibrated: bool = False  #: whether scores carry a probability
    parity: str = "passed"  #: or "unchecked", "failed: why": did the saved checkpoint give the trainer's scores
    dtype: str = ""
    device: str = ""
    attention: str = ""  #: attention implementation; scores of soft-capped models depend on it
    calibration: str | None = None  #: id of the calibration behind the probabilities
    #: the calibration that was fitted on pairs, as JSON (`assay.models.calibration`): P(a beats b) = f(r_a - r_b)
    curve: dict[str, Any] | None = field(default=None, hash=False)
    bradley_terry: bool = False  #: trained so that a difference of two rewards of one prompt is a log-odds
    question: str | None = None  #: of a principle model: what it asks of a response, `{principle}` in it
    stepwise: bool = False  #: a process reward model: its scores have a part for each step
    #: by registered benchmarks, of all that it was made of: bases, members, parts, data
    contamination: tuple[BenchmarkUse, ...] = ()
    trained_principles: tuple[str, ...] = ()  #: the most frequent of those that it was trained to judge by

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        uses = [asdict(use) for use in self.contamination]
        return asdict(self) | {"trained_principles": list(self.trained_principles), "contamination": uses}

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> "ModelInfo":
        """Inverse of `to_dict`; unknown fields are ignored, so that a newer server can answer an older client."""
        fields = {name: payload[name] for name in cls.__dataclass_fields__ if name in payload}
        fields["contamination"] = uses_from(fields.get("contamination"))
        return cls(**(fields | {"trained_principles": tuple(fields.get("trained_principles", ()))}))


def require_step_reader(info: ModelInfo, items: Iterable[ScoreItem]) -> None:
    """Raises BadInputError for responses given in steps, where the model reads none."""
    if not info.stepwise and any(item.steps is not None for item in items):
        message = f"{info.name} is no process reward model and reads no steps: give each response as one text"
        raise BadInputError(message, field="steps")


class Scorer(Protocol):
    """Anything that scores. An item that cannot be scored gives a `ScoreFailure` in its place, never an exception."""

    @property
    def info(self) -> ModelInfo: ...

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """One result per item, in the given order; `on_progress` gets the number of items just done.

        Raises AssayError only for what concerns all items alike: the model or the server is gone.
        """
        ...


@runtime_checkable
class Repeatable(Protocol):
    """An engine that may be repeatable: it gives an item the same score every time, so that scores can be cached."""

    @property
    def score_identity(self) -> str | None:
        """What its scores depend on besides the item and its `info`: settings, a seed; None: not repeatable."""
        ...


@runtime_checkable
class ReadsRendered(Protocol):
    """An engine that reads rendered texts, also by other chat templates than its own."""

    def expect(self, policies: "Sequence[PolicyTemplate]") -> None: ...


@runtime_checkable
class ReadInOtherWays(Protocol):
    """An engine that can compute the same scores in other ways: padded on the other side, packed, in another order."""

    def other_ways(self) -> Iterable[tuple[str, Scorer]]:
        """Name of an equality that must hold ("left = right padding") and a scorer that must give equal scores."""
        ...
