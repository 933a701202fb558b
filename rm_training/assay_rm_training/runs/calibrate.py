"""Calibration of a stored reward model as a recorded run: score gold pairs, fit, measure on left-out folds, store.

Covers: models, ensembles, rewards under a length correction; updating the spec, the card, the store's calibrations and
the probabilities of stored scores. Leaves out: the fit (`calibration`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from assay.data.pairs import load_pairs_or_file
from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.models.contamination import BenchmarkUse
from assay.models.spec import FILE, RewardModelSpec
from assay.runs.calibrations import record_calibration, refresh_probabilities
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run, locate_model
from assay.workspace import Workspace
from assay_rm_training.calibration.held_out import Calibrated, calibrate
from assay_rm_training.checkpoints.card_sections import calibration_lines, write_section
from assay_rm_training.evaluation.pairs import evaluate
from assay_rm_training.run_settings import CalibrationConfig
from assay_rm_training.runs.contamination_lineage import as_uses, record_use, states_of_use
from assay_rm_training.runs.recorded import recorded_run
from assay_rm_training.runs.train import was_trained_on
from assay_serving.engines.ensemble import FILE as ENSEMBLE_FILE
from assay_serving.engines.ensemble import EnsembleSpec
from assay_serving.engines.head_ensemble import HeadEnsembleSpec
from assay_serving.model_loader import load_scorer
from assay_serving.model_reference import is_composed, is_ensemble, is_head_ensemble, is_rubric, kind_of, known_spec


@dataclass(frozen=True)
class CalibrationOutcome:
    """`written`: the file that holds the calibration. `refreshed`: stored scores whose probability was updated.
    `trained_on`: the model was trained on these pairs, so folds are left out of the fit only."""

    model: str
    version: str
    calibrated: Calibrated
    pairs: int
    failures: dict[str, int]
    written: Path
    refreshed: int
    run_id: str | None
    trained_on: bool = False


def calibrate_model(
    workspace: Workspace | None, config: CalibrationConfig, *, waivers: Mapping[str, str] | None = None
) -> CalibrationOutcome:
    """Fit and write, with progress on standard error.

    Raises NotFoundError for an unknown model or data, BadInputError for a model from the hub, which has no folder to
    write to, for pairs that give no calibration, and for pairs of a registered benchmark that is not in `waivers`.
    """
    pairs = load_pairs_or_file(workspace, config.data)[: config.limit or None]
    source, artifact = locate_model(workspace, config.model)
    if kind_of(source) == "principle":
        raise BadInputError(
            f"{config.model} answers principles: `assay eval --model NAME --data JUDGED --calibrate` fits its P(Yes)"
        )
    require_folder(source, config.model)
    states = states_of_use(workspace, config.data, pairs, "calibration", waivers or {})
    with recorded_run(workspace, "calibrate", asdict(config), model=(source, artifact), data=[config.data]) as run:
        scorer = load_scorer(
            config.model_config(source, served_as=config.model), workspace.root if workspace is not None else None
        )
        with progress_bar("scoring", 2 * len(pairs), unit="responses") as advance:
            evaluation = evaluate(scorer, pairs, seed=config.seed, advance=advance)
        scored = [item for item in evaluation.items if item.failure is None]
        calibrated = calibrate(
            *evaluation.rewards(),
            [item.prompt_id for item in scored],
            fitted_on=config.data,
            method=config.method,
            folds=config.folds,
            seed=config.seed,
        )
        folder = Path(source).expanduser()
        record_use(run, config.data, states)
        uses = as_uses(states, "calibration", config.data, folder.name)
        written, refreshed = keep_calibration(
            folder, calibrated.calibration, run=run, version=scorer.info.version, correct=config.correct, uses=uses
        )
        trained_on = was_trained_on(workspace, known_spec(source), config.data)
        if run is not None:
            run.metrics.update(
                calibrated.to_dict()
                | {
                    "trained_on": trained_on,
                    "model": scorer.info.name,
                    "version": scorer.info.version,
                    "pairs": len(scored),
                    "failures": evaluation.failures,
                    "refreshed_scores": refreshed,
                }
            )
        return CalibrationOutcome(
            scorer.info.name,
            scorer.info.version,
            calibrated,
            len(scored),
            evaluation.failures,
            written,
            refreshed,
            run.id if run else None,
            trained_on,
        )


def require_folder(source: str, name: str) -> None:
    """Raises BadInputError for a model that can hold no calibration: one made of several, or one from the hub."""
    if is_composed(source) or is_rubric(source):
        raise BadInputError(f"cannot calibrate {name}: a reward of several models has no calibration; calibrate theirs")
    if not Path(source).expanduser().exists():
        raise BadInputError(f"cannot calibrate {name}: only a model in a folder has a spec to write to")


def keep_calibration(
    model: Path,
    calibration: Calibration,
    *,
    run: Run | None,
    version: str,
    correct: str | None = None,
    uses: Sequence[BenchmarkUse] = (),
) -> tuple[Path, int]:
    """Write it to the spec in the model's folder (under `correct` to that length correction) and to the card, or to an
    ensemble's file, with the `uses` of benchmarks that its pairs are of; with a run, to its workspace, whose stored
    scores of this `version` take its probabilities.

    Returns the file, and how many stored scores changed. Raises BadInputError for a folder without a spec.
    """
    if is_ensemble(str(model)):
        file = model / ENSEMBLE_FILE if model.is_dir() else model
        EnsembleSpec.read(file).calibrated(calibration).contaminated(uses).write(file)
    elif is_head_ensemble(str(model)):
        file = HeadEnsembleSpec.read(model).calibrated(calibration).contaminated(uses).write(model)
    else:
        file = model / FILE
        spec = RewardModelSpec.read(model)
        if spec is None:
            raise BadInputError(
                f"has no {FILE} to hold a calibration; `assay verify --adopt` writes one for a model from elsewhere",
                file=model,
            )
        spec = spec.contaminated(uses)
        if any(not use.clean for use in uses):
            write_section(model, "Contamination of the calibration", [f"- {use}" for use in uses])
        if correct is None:
            spec.calibrated(calibration).write(model)
            write_section(model, "Calibration", calibration_lines(calibration))
        else:
            name = correct.partition(":")[0]
            correction = next(c for c in spec.length_corrections if c.name == name)  # it was scored under
            spec.corrected(replace(correction, calibration=calibration)).write(model)
    if run is None:
        return file, 0
    record_calibration(run.workspace, version, calibration, run.id)
    return file, refresh_probabilities(run.workspace, version, calibration)


def calibration_of(model: Path, *, correct: str | None = None) -> Calibration | None:
    """The current calibration of the model in this folder (or the ensemble of this file); None for other models."""
    if is_ensemble(str(model)):
        return EnsembleSpec.read(model / ENSEMBLE_FILE if model.is_dir() else model).calibration
    if is_head_ensemble(str(model)):
        return HeadEnsembleSpec.read(model).calibration
    spec = RewardModelSpec.read(model) if model.is_dir() else None
    if spec is None or correct is None:
        return spec.calibration if spec is not None else None
    name = correct.partition(":")[0]
    return next((c.calibration for c in spec.length_corrections if c.name == name), None)
