"""Evaluation of a principle model on judged responses as a recorded run.

Covers: cells and base rates from the model's training run (none for other models), calibration. Leaves out: the metrics
(`evaluation/principle.py`), pairs (`runs/evaluate.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from assay.errors import AssayError, BadInputError
from assay.models.calibration import Calibration
from assay.models.spec import RewardModelSpec
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_rm_training.calibration.principle import fit_judgments
from assay_rm_training.data.principle_rows import PrincipleRow, load_rows_or_file
from assay_rm_training.evaluation.principle import PrincipleEvaluation, evaluate_rows
from assay_rm_training.evaluation.principle_split import with_cells
from assay_rm_training.methods.principle import Principle
from assay_rm_training.run_settings import EvalConfig
from assay_rm_training.runs.calibrate import keep_calibration
from assay_rm_training.runs.contamination_lineage import as_uses, states_of_use
from assay_rm_training.runs.recorded import recorded_run, write_report
from assay_rm_training.runs.train import TrainingPlan
from assay_serving.engines.principle import PrincipleScorer


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
