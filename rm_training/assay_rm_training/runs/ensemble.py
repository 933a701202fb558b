"""Building an ensemble of reward models as a recorded run: scale measured on a common set, combination, metrics.

Covers: the description file under `workspace.models / NAME`, held-out accuracy of each member and of the ensemble,
accuracy by uncertainty. Leaves out: combining scores (`assay_serving.engines.ensemble`).
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.data.pairs import load_pairs_or_file
from assay.errors import BadInputError
from assay.models.contamination import union
from assay.runs.model_run import model_folder, model_run
from assay.runs.progress_bar import progress_bar
from assay.runs.record import folder_digest, locate_model
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_rm_training.calibration.uncertainty import UncertaintyReport
from assay_rm_training.checkpoints.card_sections import CARD, render_card
from assay_rm_training.evaluation.metrics import Accuracy
from assay_rm_training.run_settings import EnsembleConfig
from assay_rm_training.runs.contamination_lineage import uses_of_model
from assay_rm_training.runs.heads import as_written
from assay_rm_training.runs.recorded import inputs_of
from assay_serving.engines.ensemble import (
    FILE,
    EnsembleMember,
    EnsembleScorer,
    EnsembleSpec,
    standardised_members,
)
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem


@dataclass(frozen=True)
class BuiltEnsemble:
    """`accuracies`: of each member and of the ensemble on the evaluation pairs, empty without any. `uncertainty`: what
    the members' spread is worth there."""

    path: Path
    artifact_id: str
    run_id: str
    version: str
    spec: EnsembleSpec
    responses: int
    accuracies: dict[str, Accuracy] = field(default_factory=dict)
    uncertainty: UncertaintyReport | None = None

    def to_dict(self) -> dict[str, Any]:
        uncertainty = self.uncertainty.to_dict() if self.uncertainty is not None else None
        return asdict(self) | {"path": str(self.path), "uncertainty": uncertainty}


def build_ensemble(workspace: Workspace, config: EnsembleConfig) -> BuiltEnsemble:
    """Measure the members' scale, write the description, evaluate, with progress on standard error.

    Raises BadInputError for a name in use, a repeated member, and members that cannot be brought to one scale.
    """
    if len(set(config.members)) != len(config.members):
        raise BadInputError("a member is named twice", field="members")
    ensemble_spec(config, tuple(EnsembleMember(name) for name in config.members))  # checks the settings before scoring
    model_folder(workspace, config.name, force=config.force)  # fail before the pairs are read
    located = [locate_model(workspace, member) for member in config.members]
    pairs = load_pairs_or_file(workspace, config.data)[: config.limit or None]
    judged = load_pairs_or_file(workspace, config.eval_data)[: config.limit or None] if config.eval_data else []
    inputs = inputs_of(workspace, located, filter(None, (config.data, config.eval_data)))
    with model_run(workspace, "ensemble", config.name, asdict(config), force=config.force, inputs=inputs) as (
        run,
        target,
    ):
        scorers = [
            load_scorer(config.model_config(source, served_as=member), workspace.root)
            for member, (source, _) in zip(config.members, located, strict=True)
        ]
        names = [as_written(source, target, workspace) for source, _ in located]
        items = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
        with progress_bar("scoring", len(items) * len(scorers), unit="responses") as advance:
            members, used = standardised_members(names, scorers, items, advance)
        if config.scale == "raw":
            members = tuple(EnsembleMember(m.model, version=m.version) for m in members)
        uses = union(*(uses_of_model(workspace, source) for source, _ in located))
        spec = ensemble_spec(config, members).contaminated(uses)
        ensemble = EnsembleScorer(spec, scorers, name=target.name)
        accuracies: dict[str, Accuracy] = {}
        uncertainty: UncertaintyReport | None = None
        if judged:
            accuracies, uncertainty = _figures(ensemble, config, judged)
        target.mkdir(parents=True)
        spec.write(target / FILE)
        with replacing(target / CARD) as temporary:
            figures: dict[str, Any] = {"eval_data": config.eval_data, "accuracies": accuracies}
            figures["uncertainty"] = uncertainty
            card = render_card("ensemble", name=target.name, spec=spec, version=ensemble.info.version, **figures)
            temporary.write_text(card, encoding="utf-8")
        artifact = run.add_artifact(
            "reward_model",
            target.name,
            target,
            content_hash=folder_digest(target),
            spec={"version": ensemble.info.version, **asdict(spec)},
        )
        outcome = BuiltEnsemble(
            target, artifact, run.id, ensemble.info.version, spec, used, accuracies=accuracies, uncertainty=uncertainty
        )
        run.metrics.update(outcome.to_dict())
        return outcome


def ensemble_spec(config: EnsembleConfig, members: tuple[EnsembleMember, ...]) -> EnsembleSpec:
    """The description of these members under the settings. Raises BadInputError for wrong ones."""
    return EnsembleSpec(
        members,
        config.combine,  # type: ignore[arg-type]  # checked by the description
        config.weight,
        config.beta,
        config.variance,  # type: ignore[arg-type]
        config.scale,  # type: ignore[arg-type]
        config.data,
    )


def _figures(
    ensemble: EnsembleScorer, config: EnsembleConfig, judged: list[Any]
) -> tuple[dict[str, Accuracy], UncertaintyReport | None]:
    from assay_rm_training.evaluation.pairs import evaluate

    accuracies = {}
    with progress_bar("evaluating", 2 * len(judged) * (len(ensemble.members) + 1), unit="responses") as advance:
        for member in ensemble.members:
            accuracies[member.info.name] = evaluate(member, judged, seed=config.seed, advance=advance).accuracy
        evaluation = evaluate(ensemble, judged, seed=config.seed, advance=advance)
    accuracies[ensemble.info.name] = evaluation.accuracy
    return accuracies, evaluation.uncertainty
