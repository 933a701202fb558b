"""One demo from an empty folder to the path of its report."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.statistics.intervals import bounds
from assay.workspace import Workspace
from assay_pipelines.curation.loop.relabelling import RelabelReport
from assay_web.demo.config import DemoConfig
from assay_web.demo.pages import compose
from assay_web.demo.pipeline import DemoResults, run_pipeline
from assay_web.demo.policy import Optimised
from assay_web.demo.reward_models import Difference
from assay_web.report.render import write


@dataclass(frozen=True)
class DemoOutcome:
    """Where the report is, and the demo's figures."""

    report: Path
    workspace: Path
    results: DemoResults

    def to_dict(self) -> dict[str, Any]:
        """The figures by name, for machines."""
        results = self.results
        curated, errors = results.curated, results.curated.errors
        return {
            "report": str(self.report),
            "workspace": str(self.workspace),
            "run": results.run_id,
            "base": results.config.base,
            "seed": results.config.seed,
            "imported": asdict(curated.imported),
            "cleaned": curated.hygiene.cleaned,
            "verified": asdict(curated.verified),
            "sources": {
                r.name: {
                    "right_on_gold": r.right,
                    "of": r.compared,
                    "mean": r.mean,
                    "interval": bounds(r.interval),
                    "wrong_in_truth": results.truth.wrong_of(r.name),
                }
                for r in curated.reliability
            },
            "source_pass": asdict(curated.passed),
            "relabelled": asdict(curated.relabelled)
            if isinstance(curated.relabelled, RelabelReport)
            else curated.relabelled,
            "errors": {
                **asdict(errors),
                "recall": errors.recall,
                "precision": errors.precision,
                "noise_before": errors.noise_before,
                "noise_after": errors.noise_after,
            },
            "accuracy": {
                m.label: {
                    "pairs": m.pairs,
                    "value": m.evaluation.accuracy.value,
                    "interval": bounds(m.evaluation.accuracy.interval),
                }
                for m in results.models
            },
            "length_baseline": results.models[0].evaluation.length_baseline,
            "shorter_baseline": results.shorter_baseline,
            "curated_minus_raw": _difference(results.gain),
            "oracle_minus_raw": _difference(results.headroom),
            "policy": _policy(results.optimised),
            "snapshots": results.snapshots,
            "seconds": {name: asdict(step) for name, step in results.steps.items()},
        }


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {"value": difference.value, "interval": bounds(difference.interval), "pairs": difference.pairs}


def _policy(optimised: Optimised | None) -> dict[str, Any] | None:
    if optimised is None:
        return None
    trained = optimised.trained
    return {
        "before": trained.before.to_dict() if trained.before else None,
        "after": trained.after.to_dict() if trained.after else None,
        "change": trained.change.to_dict() if trained.change else None,
        "artifact": trained.policy_artifact,
    }


def run_demo(folder: Path, *, quick: bool, seed: int, say: Callable[[str], None], policy: bool = True) -> DemoOutcome:
    """Create a workspace in `folder`, run the demo in it and write its report. `policy`: whether one is trained.

    Raises BadInputError for a folder that holds something already, and all that the parts raise.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError("is not an empty folder; the demo creates its own workspace", file=folder)
    config = DemoConfig.quick(seed) if quick else DemoConfig.full(seed)
    workspace = Workspace.create(folder)
    say(f"workspace: {workspace.root}")
    results = run_pipeline(workspace, config, say, policy=policy)
    report = workspace.reports / "demo.html"
    with start_run(workspace, "report", {"demo": results.run_id}, inputs={results.run_id: "run"}) as run:
        write(compose(results, workspace), report)
        digest = hashlib.sha256(report.read_bytes()).hexdigest()[:32]
        run.add_artifact("report", report.name, report, content_hash=digest)
    return DemoOutcome(report, workspace.root, results)
