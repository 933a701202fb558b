"""Evaluation of a stored reward model on pairs as a recorded run, with an optional calibration.

Leaves out: what is measured (`evaluation/pairs.py`). Works without a workspace, and then leaves no run record.

Evaluation of a principle model on judged responses as a recorded run. Covers: cells and base rates from the model's
training run (none for other models), calibration. Leaves out: the metrics (`evaluation/principle.py`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from assay.compute.executor import Executor
from assay.data.pairs import load_pairs_or_file
from assay.errors import AssayError, BadInputError
from assay.models.calibration import Calibration
from assay.models.contamination import BenchmarkUse, union
from assay.models.spec import RewardModelSpec
from assay.runs.contamination_gate import BenchmarkState, evaluated_contamination
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_rm_training.calibration.fitting import fit_judgments
from assay_rm_training.calibration.held_out import calibrate
from assay_rm_training.data.principle_rows import PrincipleRow, load_rows_or_file
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.evaluation.principle import PrincipleEvaluation, evaluate_rows
from assay_rm_training.evaluation.principle_split import with_cells
from assay_rm_training.methods.principle import Principle
from assay_rm_training.run_settings import EvalConfig
from assay_rm_training.runs.calibrate import calibration_of, keep_calibration, require_folder
from assay_rm_training.runs.contamination_lineage import as_uses, relevant, states_of_use, uses_of_model
from assay_rm_training.runs.recorded import recorded_run, write_report
from assay_rm_training.runs.train import TrainingPlan, was_trained_on
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.model_loader import load_scorer
from assay_serving.model_reference import known_spec
from assay_serving.scorer import Scorer
from assay_serving.sharded_scorer import ShardedScorer, shared_workspace


@dataclass(frozen=True)
class EvaluationRun:
    """`folder`: of evaluation.json and items.jsonl. `fitted`: the calibration written to `fitted_into`.

    `contamination`: for each registered benchmark that the pairs are of, whether the model's training data is checked
    against it, and how many of its prompts were evaluated. `notes`: why metrics are biased upwards, where they are.
    `lineage`: what the model carries of these benchmarks; outside a workspace of all.
    """

    evaluation: PairEvaluation
    run_id: str | None
    folder: Path | None
    fitted: Calibration | None
    fitted_into: Path | None
    contamination: Sequence[tuple[BenchmarkState, int]] = ()
    notes: tuple[str, ...] = ()
    lineage: tuple[BenchmarkUse, ...] = ()


def evaluate_model(
    workspace: Workspace | None, config: EvalConfig, *, out: Path | None = None, executor: Executor | None = None
) -> EvaluationRun:
    """Evaluate, with progress on standard error. `out`: a folder for the metrics, created if missing. `executor`: where
    the pairs are scored, on shards in the workspace; None: in this process.

    Raises NotFoundError for an unknown model or data, BadInputError where calibrating cannot work: a model from the
    hub has no folder to write to; pairs that the model ranks no better than chance give no temperature.
    """
    pairs = load_pairs_or_file(workspace, config.data)[: config.limit or None]
    source, artifact = locate_model(workspace, config.model)
    model_folder = Path(source).expanduser()
    if config.calibrate:
        require_folder(source, config.model)
        states = states_of_use(workspace, config.data, pairs, "calibration", {})
    with recorded_run(workspace, "eval", asdict(config), model=(source, artifact), data=[config.data]) as run:
        model = config.model_config(source)
        scorer: Scorer
        if executor is not None:
            scorer = ShardedScorer(shared_workspace(workspace), model, executor)
        else:
            scorer = load_scorer(model, workspace.root if workspace is not None else None)
        spec = known_spec(source)
        stored = calibration_of(model_folder, correct=config.correct)
        with progress_bar("evaluating", 2 * len(pairs), unit="responses") as advance:
            evaluation = evaluate(scorer, pairs, seed=config.seed, calibration=stored, advance=advance)
        fitted = None
        if config.calibrate:
            prompts = [item.prompt_id for item in evaluation.items if item.failure is None]
            calibrated = calibrate(
                *evaluation.rewards(), prompts, fitted_on=config.data, method="temperature", seed=config.seed
            )
            fitted = calibrated.calibration
            uses = as_uses(states, "calibration", config.data, model_folder.name)
            keep_calibration(
                model_folder, fitted, run=run, version=scorer.info.version, correct=config.correct, uses=uses
            )
            evaluation = replace(evaluation, calibrated=calibrated.after)
        notes = _notes(workspace, spec, config, stored)
        folder = write_report(evaluation, run, out)
        contamination: list[tuple[BenchmarkState, int]] = []
        if workspace is not None:
            trained_on, trained_by = (spec.snapshot, spec.run_id) if spec is not None else (None, None)
            contamination = evaluated_contamination(workspace, pairs, snapshot_id=trained_on, run_id=trained_by)
        carried = union(uses_of_model(workspace, source), scorer.info.contamination)
        lineage = relevant(carried, contamination if workspace is not None else None)
        if run is not None:
            run.metrics["contamination_lineage"] = [asdict(use) for use in lineage]
            run.metrics["contamination"] = [state.to_dict() | {"evaluated": n} for state, n in contamination]
            run.metrics["fitted"] = asdict(fitted) if fitted else None
            run.metrics["notes"] = list(notes)
        return EvaluationRun(
            evaluation,
            run.id if run else None,
            folder,
            fitted,
            model_folder / "assay.json" if fitted else None,
            contamination,
            notes,
            lineage,
        )


def _notes(
    workspace: Workspace | None, spec: RewardModelSpec | None, config: EvalConfig, stored: Calibration | None
) -> tuple[str, ...]:
    notes = []
    if was_trained_on(workspace, spec, config.data):
        notes.append("the model was trained on these pairs: every metric is biased upwards")
    if stored is not None and stored.fitted_on == config.data and not config.calibrate:
        notes.append("its calibration was fitted on these pairs: the calibrated metrics are biased upwards")
    return tuple(notes)


@dataclass(frozen=True)
class PrincipleEvaluationRun:
    """`folder`: of evaluation.json and items.jsonl. `fitted`: written to `fitted_into`; `evaluation` is with it,
    `before` without."""

    evaluation: PrincipleEvaluation
    before: PrincipleEvaluation | None
    run_id: str | None
    folder: Path | None
    fitted: Calibration | None
    fitted_into: Path | None


def evaluate_judgments(
    workspace: Workspace | None, config: EvalConfig, *, out: Path | None = None
) -> PrincipleEvaluationRun:
    """Evaluate, with progress on standard error. Raises as `load_rows_or_file` and `PrincipleScorer.load`, and
    BadInputError where calibrating cannot work."""
    rows = load_rows_or_file(workspace, config.data)[: config.limit or None]
    source, artifact = locate_model(workspace, config.model)
    model_folder = Path(source).expanduser()
    if config.calibrate and RewardModelSpec.read(model_folder) is None:
        raise BadInputError(f"cannot calibrate {config.model}: it has no spec to write to")
    states = states_of_use(workspace, config.data, rows, "calibration", {}) if config.calibrate else []
    with recorded_run(workspace, "eval", asdict(config), model=(source, artifact), data=[config.data]) as run:
        scorer = PrincipleScorer.load(config.model_config(source))
        trained_on = trained_rows(workspace, scorer.spec)
        held_out = rows if trained_on is None else with_cells(trained_on, rows)
        with progress_bar("evaluating", len(rows), unit="judgments") as advance:
            evaluation = evaluate_rows(scorer, held_out, seed=config.seed, advance=advance)
        before, fitted = None, None
        if config.calibrate:
            scored = [item for item in evaluation.items if item.reward is not None]
            fitted = fit_judgments(
                [item.reward or 0.0 for item in scored], [item.fulfilled for item in scored], fitted_on=config.data
            )
            uses = as_uses(states, "calibration", config.data, model_folder.name)
            keep_calibration(model_folder, fitted, run=run, version=scorer.info.version, uses=uses)
            before, evaluation = evaluation, evaluation.calibrated(fitted)
        folder = write_report(evaluation, run, out)
        if run is not None:
            run.metrics["fitted"] = asdict(fitted) if fitted else None
        return PrincipleEvaluationRun(
            evaluation,
            before,
            run.id if run else None,
            folder,
            fitted,
            model_folder / "assay.json" if fitted else None,
        )


def trained_rows(workspace: Workspace | None, spec: RewardModelSpec) -> list[PrincipleRow] | None:
    """The rows that the model was trained on, by its run's record; None where record or data are missing."""
    if workspace is None or spec.run_id is None:
        return None
    try:
        plan = TrainingPlan.read(workspace, spec.run_id)
        if not isinstance(plan.method, Principle):
            return None
        rows = plan.method.read(workspace, plan.data)
        held = plan.method.read(workspace, plan.eval_data) if plan.eval_data else None
        return list(plan.method.divide(rows, held)[0])
    except AssayError:
        return None  # the file has moved or changed: the report has no cells
