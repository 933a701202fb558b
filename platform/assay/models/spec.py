"""The one description of a reward model: `assay.json` in the checkpoint's folder.

Covers: kind, base, template identity, trained length, principle support, calibration, parity, where it came from.
Leaves out: the weights, which are a stock transformers checkpoint that any engine loads; what a calibration computes
(`calibration.py`).
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Gt, Le, Lt

from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.models.contamination import BenchmarkUse, union, uses_from
from assay.models.length_correction import LengthCorrection
from assay.models.readings import Aggregation, Critique, Implicit, RatingHeads, Stepwise
from assay.settings import check_settings

__all__ = [
    "FILE",
    "FORMAT",
    "Calibration",
    "Implicit",
    "Judging",
    "Kind",
    "ParityCheck",
    "RatingHeads",
    "RewardModelSpec",
    "Stepwise",
    "weights_digest",
]

FILE = "assay.json"
FORMAT = 1
Kind = Literal["scalar", "principle", "generative", "implicit"]


@dataclass(frozen=True, slots=True)
class ParityCheck:
    """One equality of scores that was measured: `largest` |difference| of rewards over `compared` responses."""

    name: str  #: e.g. "saved = loaded", "batch 1 = batch N"
    passed: bool
    largest: float
    compared: int
    detail: str = ""  #: what differs, where it failed


@dataclass(frozen=True, slots=True)
class Judging:
    """How a generative reward model is asked and read. `format`, `template`: `assay_serving.generative.templates`.

    `vote`: what `samples` come to: mean (of probabilities, or of expected ratings) or majority (of stated verdicts).
    `tools`: what it may call before its verdict (`assay_serving.tools.kind`), in at most `tool_rounds` turns;
    `tool_errors`: an answer with a failed call is read as any other (show), or has no verdict (fail).
    """

    format: str
    template: str  #: hash of the question's text
    samples: Annotated[int, Ge(1)] = 1
    temperature: Annotated[float, Ge(0), Lt(math.inf)] = 0.0  #: 0: the most likely token each time
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    max_new_tokens: Annotated[int, Ge(1)] = 512  #: of reasoning and verdict; a longer answer has no verdict
    vote: Literal["mean", "majority"] = "mean"
    tools: tuple[str, ...] = field(default=(), repr=False)  # the text form is part of identities from before them
    tool_rounds: Annotated[int, Ge(1)] = field(default=4, repr=False)
    tool_errors: Literal["show", "fail"] = field(default="show", repr=False)

    def __post_init__(self) -> None:
        tools: Any = self.tools
        if isinstance(tools, str):
            raise BadInputError(f"must be a list, not {tools!r}", field="tools")
        object.__setattr__(self, "tools", tuple(self.tools))  # JSON and YAML have lists
        check_settings(self)
        if self.samples > 1 and self.temperature == 0:
            raise BadInputError("several samples at temperature 0 are all the same", field="temperature")


@dataclass(frozen=True, slots=True)
class RewardModelSpec:
    """What a checkpoint is and how its scores are to be read."""

    kind: Kind
    base: str
    template_hash: str
    trained_length: int  #: tokens; scoring cuts conversations here
    version: str  #: digest of weights, config and tokenizer (`weights_digest`)
    principles: bool = False
    question: str | None = None  #: of a principle model: the wording it was trained with, `{principle}` in it
    trained_principles: tuple[str, ...] = ()  #: the most frequent of those that it was trained to judge by
    yes_token: int | None = None  #: of a principle model: its reward is logit(yes) - logit(no) at the answer
    no_token: int | None = None
    calibration: Calibration | None = None
    snapshot: str | None = None
    run_id: str | None = None
    parity: str = "unchecked"  #: "passed" where every check held, "failed: ..." otherwise
    parity_checks: tuple[ParityCheck, ...] = ()
    head_start: str | None = None  #: how the head began: "zero", "normal, seed 7", "kept"; averages need the same
    length_corrections: tuple[LengthCorrection, ...] = ()  #: applied only where one is asked for by name
    judging: Judging | None = None  #: of generative models
    implicit: Implicit | None = None  #: of policies that are read as reward models
    stepwise: Stepwise | None = None  #: of process reward models (kind scalar)
    ratings: RatingHeads | None = None  #: of models that keep one output a rating (kind scalar)
    critique: Critique | None = None  #: of models that criticise before they score (kind scalar)
    method: dict[str, Any] | None = None  #: the training method's name and settings
    contamination: tuple[BenchmarkUse, ...] = ()  #: by registered benchmarks, of all that the model was made of
    adapter: str | None = None  #: published form that it is read by (`assay.models.adapters`), kind scalar
    ranked: bool = True  #: trained by comparisons, so that a difference of rewards is a log-odds; not by ratings

    def write(self, folder: Path) -> None:
        """Write `assay.json` into the checkpoint's folder, atomically."""
        scratch = folder / (FILE + ".tmp")
        scratch.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n", encoding="utf-8")
        scratch.replace(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> "RewardModelSpec | None":
        """The folder's spec, None where it has none (a checkpoint from elsewhere). Raises BadInputError if broken, or
        where it names code as its kind or question: a checkpoint may come from anywhere."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            payload: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if (file_format := payload.pop("format", None)) != FORMAT:
                raise BadInputError(f"spec format {file_format}, this Assay reads {FORMAT}", file=path)
            calibration = payload.pop("calibration", None)
            checks = tuple(ParityCheck(**check) for check in payload.pop("parity_checks", ()))
            judging, stepwise = payload.pop("judging", None), payload.pop("stepwise", None)
            ratings, implicit = payload.pop("ratings", None), payload.pop("implicit", None)
            critique = payload.pop("critique", None)
            if payload.get("kind") not in get_args(Kind):
                raise BadInputError(f"must be one of {', '.join(get_args(Kind))}", file=path, field="kind")
            if judging and ":" in Path(str(judging.get("format"))).name:
                raise BadInputError("a checkpoint may not name code; --judge-profile may", file=path, field="format")
            contamination = uses_from(payload.pop("contamination", None))
            trained_principles = tuple(payload.pop("trained_principles", ()))
            corrections = tuple(LengthCorrection.from_dict(c) for c in payload.pop("length_corrections", ()))
            return cls(
                **payload,
                trained_principles=trained_principles,
                length_corrections=corrections,
                contamination=contamination,
                calibration=Calibration.from_dict(calibration) if calibration else None,
                parity_checks=checks,
                judging=Judging(**judging) if judging else None,
                implicit=Implicit(**implicit) if implicit else None,
                stepwise=Stepwise(**stepwise) if stepwise else None,
                ratings=rating_heads(ratings) if ratings else None,
                critique=Critique(**critique) if critique else None,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadInputError(f"not a reward-model spec: {error}", file=path) from error

    @property
    def is_one_logit(self) -> bool:
        """Whether any engine gives this model's reward: a stock classifier's one logit at the conversation's end."""
        special = (self.ratings, self.stepwise, self.adapter, self.critique)
        return self.kind == "scalar" and all(reading is None for reading in special)

    def calibrated(self, calibration: Calibration) -> "RewardModelSpec":
        return replace(self, calibration=calibration)

    def contaminated(self, uses: Iterable[BenchmarkUse]) -> "RewardModelSpec":
        """With these uses of benchmarks beside its own."""
        return replace(self, contamination=union(self.contamination, uses))

    def corrected(self, correction: LengthCorrection) -> "RewardModelSpec":
        """With this length correction, in the place of one of its name."""
        remaining = tuple(c for c in self.length_corrections if c.name != correction.name)
        return replace(self, length_corrections=(*remaining, correction))


def rating_heads(payload: dict[str, Any]) -> RatingHeads:
    """Of its stored JSON."""
    how = payload["aggregation"]
    aggregation = Aggregation(how["kind"], tuple(how["weights"]), tuple(how["thresholds"]))
    return RatingHeads(tuple(payload["names"]), tuple(payload["offsets"]), aggregation)


def weights_digest(folder: Path) -> str:
    """Content hash of a checkpoint: every file but Assay's own (`assay.*`) and the model card, so that calibrating or
    describing it does not change the version."""
    hasher = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(("assay.", "README"))):
        hasher.update(path.name.encode() + b"\0")
        with path.open("rb") as stream:
            hasher.update(hashlib.file_digest(stream, "sha256").digest())
    return hasher.hexdigest()[:16]
