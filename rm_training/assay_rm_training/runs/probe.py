"""Training a linear probe as a recorded run: features, fit, checkpoint with parity check, evaluation, artifact.

Covers: what `assay train probe` and the curation loop share. Leaves out: the fit (`probe.py`), features
(`hidden_states.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from assay.domain import PreferencePair
from assay.models.contamination import union
from assay.models.spec import RewardModelSpec
from assay.runs.contamination_gate import BenchmarkState, contamination_of
from assay.runs.coverage import Coverage
from assay.runs.model_run import reserved_folder
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run, locate_model
from assay.workspace import Workspace
from assay_rm_training.checkpoints.card_sections import render_card
from assay_rm_training.checkpoints.checkpoint import save_checkpoint
from assay_rm_training.data.response_labels import RatedResponse
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.methods.head_ensemble import FittedHeads, scaled_heads, train_heads
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_rm_training.methods.multi_objective import MultiObjective, MultiObjectiveEvaluation
from assay_rm_training.methods.probe import Probe, ProbeConfig, probe_spec, train_probe, with_head
from assay_rm_training.methods.rating_heads import train_rating_heads
from assay_rm_training.runs.contamination_lineage import (
    as_uses,
    record_use,
    states_of_use,
    uses_of_judges,
    uses_of_model,
)
from assay_rm_training.runs.heads import write_head_ensemble
from assay_rm_training.runs.recorded import add_model, inputs_of, snapshot_id, training_run
from assay_serving.engines.aggregation import MemberAggregation
from assay_serving.engines.head_ensemble import HeadEnsembleSpec
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

SAMPLE = 16  # pairs of the parity check


@dataclass(frozen=True)
class ProbePlan:
    """Settings of the run. `data`, `gold`, `eval_data`: snapshots or files; `gold` selects the penalty. `heads`: fit an
    ensemble of heads instead of one, with that penalty (its own is not used), combined by `aggregation`; of `ratings`,
    if there are any."""

    config: ProbeConfig
    base: str
    data: str
    name: str
    gold: str | None = None
    eval_data: str | None = None
    max_length: int | None = None
    device: str = "auto"
    force: bool = False
    heads: HeadsConfig | None = None
    aggregation: MemberAggregation = field(default_factory=MemberAggregation)
    ratings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainedProbe:
    """`path`: the model's folder. `spec`: of the checkpoint, or of the ensemble of heads."""

    artifact_id: str
    path: Path
    run_id: str
    probe: Probe
    spec: RewardModelSpec | HeadEnsembleSpec
    evaluation: PairEvaluation | None
    warnings: tuple[str, ...] = ()


def train_probe_model(
    workspace: Workspace,
    plan: ProbePlan,
    pairs: Sequence[PreferencePair],
    gold: Sequence[PreferencePair] = (),
    eval_pairs: Sequence[PreferencePair] | None = None,
    *,
    waivers: Mapping[str, str] | None = None,
) -> TrainedProbe:
    """Fit, save and evaluate, with progress on standard error. Raises BadInputError for a name in use or reserved by
    another run (unless `plan.force`), for data neither checked against a registered benchmark nor waived, and what the
    parts raise."""
    names = [name for name in (plan.data, plan.gold, plan.eval_data) if name is not None]
    settings = {"method": "probe", **asdict(plan)}
    base = locate_model(workspace, plan.base)
    selecting = states_of_use(workspace, plan.gold, gold, "selection", waivers or {}) if plan.gold else []
    with training_run(
        workspace,
        plan.name,
        settings,
        force=plan.force,
        data=plan.data,
        waivers=waivers or {},
        inputs=inputs_of(workspace, [base] if base[1] else [], names),
        models=[plan.base],
        device=plan.device,
    ) as (run, folder, _):
        record_use(run, plan.gold or "", selecting)
        cache = FeatureCache(FrozenBackbone(plan.base, max_length=plan.max_length, device=plan.device), workspace)
        with progress_bar("features", 2 * (len(pairs) + len(gold)), unit="responses") as advance:
            probe = train_probe(cache, pairs, plan.config, gold=gold, advance=advance)
        warnings = _coverage(probe).of_training()
        spec: RewardModelSpec | HeadEnsembleSpec
        if plan.heads is None:
            artifact, spec = _save_probe(run, cache, probe, folder, data=plan.data, sample=pairs, selecting=selecting)
        else:
            held_out = (plan.eval_data or "", eval_pairs or ())
            artifact, spec = _save_ensemble(run, cache, plan, probe.l2, folder, pairs, held_out, selecting, waivers)
        evaluation = None
        if eval_pairs is not None:
            with progress_bar("evaluating", 2 * len(eval_pairs), unit="responses") as advance:
                scorer = load_scorer(ModelConfig(str(folder), device=plan.device), workspace.root)
                evaluation = evaluate(scorer, eval_pairs, advance=advance)
            evaluation.write(run.folder)
            run.metrics["evaluation"] = evaluation.to_dict()
            warnings += [f"evaluation on {plan.eval_data}: {warning}" for warning in evaluation.warnings]
        run.metrics.update(
            {
                "pairs": probe.pairs,
                "left_out": probe.left_out,
                "coverage": _coverage(probe).to_dict(),
                "warnings": warnings,
                "l2": probe.l2,
                "chosen_on": probe.chosen_on,
                "candidates": [[l2, *snapshot] for l2, snapshot in probe.candidates.items()],
            }
        )
        return TrainedProbe(artifact, folder, run.id, probe, spec, evaluation, tuple(warnings))


@dataclass(frozen=True)
class TrainedRatingProbe:
    """As `TrainedProbe`."""

    artifact_id: str
    path: Path
    run_id: str
    heads: FittedHeads
    spec: HeadEnsembleSpec
    evaluation: MultiObjectiveEvaluation | None


def train_rating_probe(
    workspace: Workspace,
    plan: ProbePlan,
    rows: Collection[RatedResponse],
    eval_rows: Collection[RatedResponse] | None = None,
    *,
    waivers: Mapping[str, str] | None = None,
) -> TrainedRatingProbe:
    """As `train_probe_model`, of `plan.ratings` of single responses: `plan.heads` members, by the bootstrap."""
    assert plan.heads is not None
    names = [name for name in (plan.data, plan.eval_data) if name is not None]
    settings, base = {"method": "rating probe", **asdict(plan)}, locate_model(workspace, plan.base)
    inputs, permitted = inputs_of(workspace, [base] if base[1] else [], names), waivers or {}
    with training_run(
        *(workspace, plan.name, settings),
        force=plan.force,
        data=plan.data,
        waivers=permitted,
        inputs=inputs,
        models=[plan.base],
        device=plan.device,
    ) as (run, folder, _):
        cache = FeatureCache(FrozenBackbone(plan.base, max_length=plan.max_length, device=plan.device), workspace)
        with progress_bar("features", len(rows), unit="responses") as advance:
            heads, ratings = train_rating_heads(cache, list(rows), plan.ratings, plan.heads, plan.config.l2, advance)
        artifact, spec = write_head_ensemble(
            run, cache, heads, folder, data=plan.data, aggregation=plan.aggregation, ratings=ratings
        )
        evaluation = None
        if eval_rows is not None:
            method = MultiObjective(plan.ratings, separate=True)
            with progress_bar("evaluating", len(eval_rows), unit="responses") as advance:
                scorer = load_scorer(ModelConfig(str(folder), device=plan.device), workspace.root)
                evaluation = method.evaluate(scorer, eval_rows, seed=plan.heads.seed, advance=advance)
            evaluation.write(run.folder)
            run.metrics["evaluation"] = evaluation.to_dict()
        run.metrics |= {"ratings": heads.pairs, "left_out": heads.left_out, "l2": heads.l2}
        return TrainedRatingProbe(artifact, folder, run.id, heads, spec, evaluation)


def _save_ensemble(
    run: Run,
    cache: FeatureCache,
    plan: ProbePlan,
    l2: float,
    folder: Path,
    pairs: Sequence[PreferencePair],
    held_out: tuple[str, Sequence[PreferencePair]],
    selecting: Sequence[BenchmarkState],
    waivers: Mapping[str, str] | None,
) -> tuple[str, HeadEnsembleSpec]:
    """Fit the heads with this penalty, scale their spread on the held-out pairs if there are any, and save them."""
    assert plan.heads is not None
    config, report = replace(plan.heads, l2=l2), None
    heads = train_heads(cache, pairs, config, label_smoothing=plan.config.label_smoothing)
    uses = as_uses(selecting, "selection", "gold", folder.name)
    data, held = held_out
    if held:
        states = states_of_use(run.workspace, data, held, "calibration", waivers or {})
        record_use(run, data, states)
        uses = union(uses, as_uses(states, "calibration", data, folder.name))
        with progress_bar("features", 2 * len(held), unit="responses") as advance:
            heads, report = scaled_heads(cache, heads, held, advance)
    return write_head_ensemble(
        run,
        cache,
        heads,
        folder,
        data=plan.data,
        aggregation=plan.aggregation,
        report=report,
        report_on=data or None,
        uses=uses,
    )


def _coverage(probe: Probe) -> Coverage:
    left_out = {"a side is too long or empty": probe.left_out} if probe.left_out else {}
    return Coverage(probe.pairs + probe.left_out, probe.pairs, "pairs", left_out)


def save_probe(
    run: Run, cache: FeatureCache, probe: Probe, name: str, *, data: str, sample: Sequence[PreferencePair]
) -> tuple[str, Path, RewardModelSpec]:
    """Write the probe as a stock checkpoint of the workspace, under `name` or, where that is taken, NAME-v2, -v3, ...

    Returns artifact id, folder and spec. `sample`: pairs of the parity check.
    """
    with reserved_folder(run.workspace, name, force=True) as (folder, set_owner):
        set_owner(run.id)
        artifact, spec = _save_probe(run, cache, probe, folder, data=data, sample=sample)
    return artifact, folder, spec


def _save_probe(
    run: Run,
    cache: FeatureCache,
    probe: Probe,
    folder: Path,
    *,
    data: str,
    sample: Sequence[PreferencePair],
    selecting: Sequence[BenchmarkState] = (),
) -> tuple[str, RewardModelSpec]:
    backbone = cache.backbone
    tried = ", ".join(f"{l2:g}: {nll:.4f}" for l2, (_, nll) in sorted(probe.candidates.items()))
    states = contamination_of(run.workspace, snapshot_id(run.workspace, data), run_id=run.id)
    uses = union(
        as_uses(states, "training", data, folder.name),
        as_uses(selecting, "selection", "gold", folder.name),
        uses_of_model(run.workspace, backbone.base),
        uses_of_judges(run.workspace, snapshot_id(run.workspace, data)),
    )
    card = render_card(
        "probe",
        name=folder.name,
        base=backbone.base,
        renderer=backbone.renderer,
        warnings=_coverage(probe).of_training(),
        probe=probe,
        data=data,
        snapshot=snapshot_id(run.workspace, data),
        run=run.id,
        tried=tried,
        uses=uses,
    )
    spec, _ = save_checkpoint(
        with_head(backbone.trainable, probe),
        probe_spec(cache, snapshot=snapshot_id(run.workspace, data), run_id=run.id).contaminated(uses),
        backbone.renderer,
        folder,
        sample=[ScoreItem(p.prompt, text) for p in sample[:SAMPLE] for text in (p.chosen, p.rejected)],
        card=card,
    )
    artifact = add_model(run, folder, spec)
    return artifact, spec
