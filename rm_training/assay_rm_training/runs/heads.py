"""Saving an ensemble of heads in the workspace, recorded as an artifact of a run.

Covers: the folder with its card, the uses of benchmarks that it carries. Quick: the backbone is named, not copied.
Leaves out: fitting (`methods.head_ensemble`), the run of `assay train probe` (`probe`).
"""

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from assay.models.contamination import BenchmarkUse, union
from assay.models.readings import RatingHeads
from assay.runs.contamination_gate import contamination_of
from assay.runs.coverage import Coverage
from assay.runs.record import Run, folder_digest
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_rm_training.calibration.uncertainty import UncertaintyReport
from assay_rm_training.checkpoints.card_sections import CARD, render_card
from assay_rm_training.methods.head_ensemble import FittedHeads
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.runs.contamination_lineage import as_uses, uses_of_judges, uses_of_model
from assay_rm_training.runs.recorded import snapshot_id
from assay_serving.engines.aggregation import MemberAggregation
from assay_serving.engines.head_ensemble import HeadEnsembleSpec, write_heads


def write_head_ensemble(
    run: Run,
    cache: FeatureCache,
    heads: FittedHeads,
    folder: Path,
    *,
    data: str,
    aggregation: MemberAggregation | None = None,
    report: UncertaintyReport | None = None,
    report_on: str | None = None,
    uses: Iterable[BenchmarkUse] = (),
    ratings: RatingHeads | None = None,
) -> tuple[str, HeadEnsembleSpec]:
    """Write the heads into a reserved folder of the workspace; returns artifact id and description.

    `data`: the snapshot or file that they were fitted on. `report`, `report_on`: of `scaled_heads`, and its pairs.
    `uses`: of benchmarks by other pairs than those fitted on. `ratings`: of heads with an output for each.
    """
    backbone, snapshot = cache.backbone, snapshot_id(run.workspace, data)
    carried = union(
        as_uses(contamination_of(run.workspace, snapshot, run_id=run.id), "training", data, folder.name),
        uses,
        uses_of_model(run.workspace, backbone.base),
        uses_of_judges(run.workspace, snapshot),
    )
    folder.mkdir(parents=True)
    spec = HeadEnsembleSpec(
        backbone=as_written(backbone.base, folder, run.workspace),
        backbone_version=backbone.version,
        template_hash=backbone.renderer.template_hash,
        max_length=backbone.renderer.max_length,
        members=len(heads.heads) // (len(ratings.names) if ratings else 1),
        width=backbone.width,
        method=heads.method,
        l2=heads.l2,
        pairs=heads.pairs,
        weights=write_heads(folder, heads),
        aggregation=aggregation or MemberAggregation(),
        ratings=ratings,
        spread=report.factor if report is not None else 1.0,
        spread_on=report_on if report is not None else None,
        uncertainty=report.to_dict() if report is not None else None,
        contamination=carried,
        snapshot=snapshot,
        run_id=run.id,
    )
    spec.write(folder)
    left_out = {"a side is too long or empty": heads.left_out} if heads.left_out else {}
    warnings = Coverage(heads.pairs + heads.left_out, heads.pairs, "pairs", left_out).of_training()
    with replacing(folder / CARD) as temporary:
        card = render_card(
            "heads", name=folder.name, spec=spec, heads=heads, data=data, warnings=warnings, report=report
        )
        temporary.write_text(card, encoding="utf-8")
    digest, described = folder_digest(folder), {"version": spec.version, **asdict(spec)}
    return run.add_artifact("reward_model", folder.name, folder, content_hash=digest, spec=described), spec


def as_written(source: str, target: Path, workspace: Workspace) -> str:
    """How a description in `target` names a model: relative to itself within the workspace, so that the workspace may
    move."""
    path = Path(source).expanduser()
    if not path.exists():
        return source
    path = path.resolve()
    return os.path.relpath(path, target) if path.is_relative_to(workspace.root) else str(path)
