"""Routes of calibration and length bias, from runs and from stored scores."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AliasPath, BaseModel, Field

from assay.store.scored_models import ScoredModel, scored_models
from assay_rm_training.calibration.stored import MeasuredReliability, reliability_runs, stored_calibrations
from assay_rm_training.length_bias.measure import length_bias
from assay_rm_training.length_bias.stored import (
    ScoredModelRef,
    by_length,
    labelled_lengths,
    length_correlation,
    stored_lengths,
)
from assay_web.access.guard import Viewer
from assay_web.rewards.interval import FromRecord, WithInterval
from assay_web.service import ServiceNow

router = APIRouter(tags=["rewards"])

DOTS = 400  #: responses drawn individually


class ScoredModels(BaseModel):
    """The models with the most scores first."""

    models: list[ScoredModel]


class ReliabilityBin(FromRecord):
    """One bin of ten; `low`, `high`: 95 % (Wilson) of the observed share, its pairs taken as independent."""

    predicted: float = Field(validation_alias=AliasPath("bin", "predicted"))
    observed: float = Field(validation_alias=AliasPath("bin", "observed"))
    pairs: int = Field(validation_alias=AliasPath("bin", "pairs"))
    low: float = Field(validation_alias=AliasPath("interval", "low"))
    high: float = Field(validation_alias=AliasPath("interval", "high"))


class ReliabilityFigure(WithInterval):
    """`low`, `high`: 95 % by prompt, null where undetermined or `measured` is false: the run has no interval of it."""

    name: Literal["ece", "ece_equal_mass", "rms_error", "brier", "nll"]
    value: float
    measured: bool


class ReliabilitySide(BaseModel):
    """Bins and figures of one set of probabilities."""

    bins: list[ReliabilityBin]
    figures: list[ReliabilityFigure]


class ReliabilityEntry(BaseModel):
    """One run that measured reliability. `before`: rewards read as log-odds. `after`: calibrated, null without a
    calibration. `fitted`: what the run fitted, in words. `trained_on`: on the model's own training pairs."""

    run_id: str
    kind: str
    at: datetime
    model: str
    version: str
    data: str
    pairs: int
    trained_on: bool
    fitted: str | None
    before: ReliabilitySide
    after: ReliabilitySide | None
    nll_by_method: dict[str, float]
    notes: list[str]


class CalibrationEntry(FromRecord):
    """A calibration in the store. `scores`: stored ones with its probability. `newest`: of its version."""

    id: str = Field(validation_alias=AliasPath("calibration", "id"))
    model: str | None
    version: str
    at: datetime
    described: str
    fitted_on: str = Field(validation_alias=AliasPath("calibration", "fitted_on"))
    pairs: int = Field(validation_alias=AliasPath("calibration", "pairs"))
    run_id: str | None
    scores: int
    newest: bool


class CalibrationPage(BaseModel):
    """What the store knows of calibration, the newest first."""

    runs: list[ReliabilityEntry]
    calibrations: list[CalibrationEntry]


class LengthEstimate(WithInterval):
    """A figure with its 95 % interval by prompt, null where undetermined; `count`: responses or pairs it is of."""

    value: float
    count: int = Field(validation_alias="pairs")


class LengthGroup(WithInterval):
    """One of ten groups of equal count, by characters; `low`, `high`: 95 % of the mean reward."""

    shortest: float = Field(validation_alias="low")
    longest: float = Field(validation_alias="high")
    responses: int
    length: float
    reward: float


class LengthDot(BaseModel):
    """One response: its characters and its reward."""

    length: float
    reward: float


class LabelledLengthBias(FromRecord):
    """Over pairs with a label. Accuracies: where the chosen side is longer, shorter, equally long. `longer_wins`: the
    model prefers the longer side; `longer_chosen`: the label does. `given_label`: correlation within prompts, what the
    label explains taken off."""

    pairs: int
    total: int
    given_label: LengthEstimate | None
    chosen_longer: LengthEstimate | None
    chosen_shorter: LengthEstimate | None
    equal: LengthEstimate | None
    longer_wins: LengthEstimate | None
    longer_chosen: LengthEstimate | None


class LengthPage(FromRecord):
    """Reward against response length, from stored scores. `responses`: read, of `total`. Correlations are null where
    nothing varies. `labelled`: null where no labelled pair has scores of both sides."""

    responses: int
    total: int
    overall: LengthEstimate | None
    within_prompt: LengthEstimate | None
    slope: LengthEstimate | None
    groups: list[LengthGroup]
    dots: list[LengthDot]
    labelled: LabelledLengthBias | None


@router.get("/api/rewards/scored")
def list_scored_models(person: Viewer, service: ServiceNow) -> ScoredModels:
    """Models with scores in the store."""
    with service.store() as db:
        return ScoredModels(models=scored_models(db))


@router.get("/api/rewards/calibration")
def read_calibration(person: Viewer, service: ServiceNow) -> CalibrationPage:
    """Reliability that runs measured, and the calibrations that stored probabilities came from."""
    with service.store() as db:
        runs, calibrations = reliability_runs(db), stored_calibrations(db)
    return CalibrationPage(
        runs=[
            ReliabilityEntry(
                **{name: value for name, value in vars(run).items() if name not in ("before", "after")},
                fitted=run.calibration.describe() if run.calibration else None,
                before=_side(run.before),
                after=_side(run.after) if run.after else None,
            )
            for run in runs
        ],
        calibrations=[CalibrationEntry.of(**vars(one), described=one.calibration.describe()) for one in calibrations],
    )


@router.get("/api/rewards/length")
def read_length_bias(
    person: Viewer,
    service: ServiceNow,
    version: str,
    template_hash: str,
    principle: Annotated[str, Query(max_length=20_000)] = "",
) -> LengthPage:
    """The relation of a model's stored rewards to response length in characters."""
    of = ScoredModelRef(version, template_hash, principle)
    with service.store() as db:
        scored, pairs = stored_lengths(db, of), labelled_lengths(db, of)
    if not len(scored.rewards):
        return LengthPage(
            responses=0, total=0, overall=None, within_prompt=None, slope=None, groups=[], dots=[], labelled=None
        )
    labelled = None
    if len(pairs.prompts):
        bias = length_bias(pairs.rewards, pairs.lengths, pairs.prompts, unit="characters")
        labelled = vars(bias) | {"total": pairs.total}
    dots = zip(scored.lengths[:DOTS].tolist(), scored.rewards[:DOTS].tolist(), strict=True)
    figures = {
        "responses": len(scored.rewards),
        "total": scored.total,
        "groups": by_length(scored),
        "dots": [LengthDot(length=length, reward=reward) for length, reward in dots],
        "labelled": labelled,
    }
    return LengthPage.model_validate(vars(length_correlation(scored)) | figures)


def _side(side: MeasuredReliability) -> ReliabilitySide:
    figures = [
        ReliabilityFigure.of(name=name, value=value, interval=side.intervals.get(name), measured=name in side.intervals)
        for name, value in side.figures.items()
    ]
    return ReliabilitySide(bins=[ReliabilityBin.model_validate(one) for one in side.bins], figures=figures)
