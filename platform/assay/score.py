"""The score contract: a score is never a bare number, and a failed score is never a number at all.

Covers: `Score`, the parts of a composed one, `ScoreFailure`, and how they travel as JSON. Used by the engines, the
server, the client, the store and the trainers. Leaves out: how scores are computed (`assay_serving`).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

#: Begins the names of the parts that are an ensemble's members, in their order: member-0, member-1, ...
MEMBER = "member-"
#: Begins the names of the parts that are the rewards after each of a model's critiques: critique-0, critique-1, ...
CRITIQUE = "critique-"
#: Begins the names of the parts that are the steps of a response, in their order: step-1, step-2, ...
STEP = "step-"
#: Code of the failure of a part that does not concern a response, by its source's own word.
NOT_APPLICABLE = "not_applicable"
#: The part that is the value before the first step, where it is known.
START = "step-0"


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One part of a composed score: what its model said, what became of it, and how much it counted.

    `skipped` says why the part was not evaluated, `failed` why an item of a rubric has no grade; `reward` and `value`
    are then None. A failed part of any other composed reward makes the whole score a `ScoreFailure`.
    """

    name: str
    reward: float | None = None  #: as its model or verifier gave it
    value: float | None = None  #: after its shaping: what was combined
    weight: float | None = None  #: in the weighted sum that takes it, if one does
    model: str | None = None
    version: str | None = None
    skipped: str | None = None
    failed: str | None = None
    evidence: str | None = None  #: see `Score`
    gate: str | None = None  #: of a rubric's item that decides the reward: "veto" or "must_have"
    uncertainty: float | None = None  #: of a rating that an ensemble's members have in common: their deviation

    def to_dict(self) -> dict[str, Any]:
        """Without the fields that say nothing."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Score:
    """One response's reward, with all that is needed to interpret and reproduce it."""

    reward: float  #: the model's raw output: for Bradley-Terry a logit, comparable within one prompt
    model: str
    version: str  #: content hash of the checkpoint that answered
    template_hash: str  #: identity of chat template + special tokens that rendered the text
    tokens: int  #: tokens actually read
    truncated: bool  #: True when the conversation was cut to the model's length
    probability: float | None = None  #: calibrated P(this beats a typical response), None = not calibrated
    uncertainty: float | None = None  #: standard deviation of the reward where the model gives one
    principle: str | None = None
    calibration: str | None = None  #: id of the calibration that gave `probability`
    parts: tuple[ScorePart, ...] = ()  #: of a composed reward, in the order of its file; an ensemble's members; steps
    evidence: str | None = None  #: what a verifier measured, or the end of a judge's reasoning
    coverage: float | None = None  #: of a rubric: share of its items that have a grade

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise ValueError(f"a score must be finite, not {self.reward}: return a ScoreFailure")

    @property
    def _numbered(self) -> tuple[ScorePart, ...]:
        """Parts whose names say what they are; a rubric's are named by whoever wrote it."""
        return self.parts if self.coverage is None else ()

    @property
    def members(self) -> tuple[float, ...]:
        """Rewards of an ensemble's members, on their common scale; empty of every other model."""
        return tuple(p.value for p in self._numbered if p.name.startswith(MEMBER) and p.value is not None)

    @property
    def steps(self) -> tuple[float, ...]:
        """Values after each step of the response, where its model reads steps; of a process reward model log-odds."""
        after = (p for p in self._numbered if p.name.startswith(STEP) and p.name != START)
        return tuple(p.value for p in after if p.value is not None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `parts`, `evidence` and `coverage` only where there are any."""
        payload = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("parts", "evidence", "coverage"):
            if payload[name] in (None, ()):
                del payload[name]
        return payload | ({"parts": [part.to_dict() for part in self.parts]} if self.parts else {})


def margin_deviation(a: Score, b: Score) -> float | None:
    """Standard deviation of reward a - reward b. Over an ensemble's members, whose errors the two share; of other
    models as if the two errors were independent. None where a reward has none."""
    if a.members and len(a.members) == len(b.members):
        margins = [x - y for x, y in zip(a.members, b.members, strict=True)]
        mean = sum(margins) / len(margins)
        return math.sqrt(sum((margin - mean) ** 2 for margin in margins) / len(margins))
    return None if a.uncertainty is None or b.uncertainty is None else math.hypot(a.uncertainty, b.uncertainty)


@dataclass(frozen=True, slots=True)
class ScoreFailure:
    """Why there is no score. Trainers mask the sample; nobody replaces it by 0.0."""

    code: str  #: "too_long", "non_finite", "backend", "timeout", "bad_input", ...
    message: str
    model: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"error": asdict(self)}


ScoreResult: TypeAlias = Score | ScoreFailure


def score_from_dict(payload: dict[str, Any]) -> ScoreResult:
    """Inverse of `to_dict`. Unknown fields are ignored, so that a newer server can answer an older client."""
    if (error := payload.get("error")) is not None:
        return ScoreFailure(code=str(error["code"]), message=str(error["message"]), model=error.get("model"))
    fields = {name: payload[name] for name in Score.__dataclass_fields__ if name in payload}
    fields["parts"] = tuple(
        ScorePart(**{name: part[name] for name in ScorePart.__dataclass_fields__ if name in part})
        for part in payload.get("parts") or ()
    )
    return Score(**fields)
