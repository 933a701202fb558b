"""Routes of calibration and length bias, from runs and from stored scores."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from assay.store.scored_models import ScoredModel, scored_models
from assay_rm_training.calibration.stored import MeasuredReliability, reliability_runs, stored_calibrations
from assay_rm_training.length_bias.measure import Estimate, LengthBias, length_bias
from assay_rm_training.length_bias.stored import (
    ScoredModelRef,
    by_length,
    labelled_lengths,
    length_correlation,
    stored_lengths,
)
from assay_web.access.guard import Viewer
from assay_web.service import ServiceNow

router = APIRouter(tags=["rewards"])

DOTS = 400  #: responses drawn individually


class ScoredModels(BaseModel):
    """The models with the most scores first."""

    models: list[ScoredModel]


class ReliabilityBin(BaseModel):
    """One bin of ten; `low`, `high`: 95 % (Wilson) of the observed share, its pairs taken as independent."""

    predicted: float
    observed: float
    pairs: int
    low: float
    high: float


class ReliabilityFigure(BaseModel):
    """`low`, `high`: 95 % by bootstrap over prompts, null where the run measured none."""

    name: Literal["ece", "ece_equal_mass", "brier", "nll"]
    value: float
    low: float | None
    high: float | None


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


class CalibrationEntry(BaseModel):
    """A calibration in the store. `scores`: stored ones with its probability. `newest`: of its version."""

    id: str
    model: str | None
    version: str
    at: datetime
    described: str
    fitted_on: str
    pairs: int
    run_id: str | None
    scores: int
    newest: bool


class CalibrationPage(BaseModel):
    """What the store knows of calibration, the newest first."""

    runs: list[ReliabilityEntry]
    calibrations: list[CalibrationEntry]


class LengthEstimate(BaseModel):
    """A figure with its 95 % interval; `count`: responses or pairs it is of."""

    value: float
    low: float
    high: float
    count: int


class LengthGroup(BaseModel):
    """One of ten groups of equal count, by characters; `low`, `high`: 95 % of the mean reward."""

    shortest: float
    longest: float
    responses: int
    length: float
    reward: float
    low: float | None
    high: float | None


class LengthDot(BaseModel):
    """One response: its characters and its reward."""

    length: float
    reward: float


class LabelledLengthBias(BaseModel):
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


class LengthPage(BaseModel):
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
                run_id=run.run_id,
                kind=run.kind,
                at=run.at,
                model=run.model,
                version=run.version,
                data=run.data,
                pairs=run.pairs,
                trained_on=run.trained_on,
                fitted=run.calibration.describe() if run.calibration else None,
                before=_side(run.before),
                after=_side(run.after) if run.after else None,
                nll_by_method=dict(run.nll_by_method),
                notes=list(run.notes),
            )
            for run in runs
        ],
        calibrations=[
            CalibrationEntry(
                id=one.calibration.id,
                model=one.model,
                version=one.version,
                at=one.at,
                described=one.calibration.describe(),
                fitted_on=one.calibration.fitted_on,
                pairs=one.calibration.pairs,
                run_id=one.run_id,
                scores=one.scores,
                newest=one.newest,
            )
            for one in calibrations
        ],
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
    correlation = length_correlation(scored)
    labelled = None
    if len(pairs.prompts):
        bias = length_bias(pairs.rewards, pairs.lengths, pairs.prompts, unit="characters")
        labelled = _labelled(bias, pairs.total)
    return LengthPage(
        responses=len(scored.rewards),
        total=scored.total,
        overall=_estimate(correlation.overall),
        within_prompt=_estimate(correlation.within_prompt),
        slope=_estimate(correlation.slope),
        groups=[
            LengthGroup(
                shortest=group.low,
                longest=group.high,
                responses=group.responses,
                length=group.length,
                reward=group.reward,
                low=group.interval.low if group.interval else None,
                high=group.interval.high if group.interval else None,
            )
            for group in by_length(scored)
        ],
        dots=[
            LengthDot(length=float(length), reward=float(reward))
            for length, reward in zip(scored.lengths[:DOTS], scored.rewards[:DOTS], strict=True)
        ],
        labelled=labelled,
    )


def _side(side: MeasuredReliability) -> ReliabilitySide:
    return ReliabilitySide(
        bins=[
            ReliabilityBin(
                predicted=one.bin.predicted,
                observed=one.bin.observed,
                pairs=one.bin.pairs,
                low=one.interval.low,
                high=one.interval.high,
            )
            for one in side.bins
        ],
        figures=[
            ReliabilityFigure.model_validate(
                {
                    "name": name,
                    "value": value,
                    "low": side.intervals[name].low if name in side.intervals else None,
                    "high": side.intervals[name].high if name in side.intervals else None,
                }
            )
            for name, value in side.figures.items()
        ],
    )


def _labelled(bias: LengthBias, total: int) -> LabelledLengthBias:
    return LabelledLengthBias(
        pairs=bias.pairs,
        total=total,
        given_label=_estimate(bias.given_label),
        chosen_longer=_estimate(bias.chosen_longer),
        chosen_shorter=_estimate(bias.chosen_shorter),
        equal=_estimate(bias.equal),
        longer_wins=_estimate(bias.longer_wins),
        longer_chosen=_estimate(bias.longer_chosen),
    )


def _estimate(estimate: Estimate | None) -> LengthEstimate | None:
    if estimate is None:
        return None
    return LengthEstimate(
        value=estimate.value, low=estimate.interval.low, high=estimate.interval.high, count=estimate.pairs
    )
