"""One demo from an empty folder to the path of its report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.statistics.intervals import bounds
from assay.workspace import Workspace
from assay_web.demo.config import DemoConfig
from assay_web.demo.pages import compose
from assay_web.demo.pipeline import DemoResults, run_pipeline
from assay_web.report.render import write


@dataclass(frozen=True)
class DemoOutcome:
    """Where the report is, and the demo's figures."""

    report: Path
    workspace: Path
    findings: DemoResults

    def to_dict(self) -> dict[str, Any]:
        """The figures by name, for machines."""
        findings = self.findings
        trained = findings.optimised.trained
        return {
            "report": str(self.report),
            "workspace": str(self.workspace),
            "run": findings.run_id,
            "base": findings.config.base,
            "imported": asdict(findings.imported),
            "cleaned": findings.hygiene.cleaned,
            "verified": asdict(findings.verified),
            "consistency": asdict(findings.consistency),
            "errors": {
                **asdict(findings.errors),
                "recall": findings.errors.recall,
                "precision": findings.errors.precision,
                "noise_before": findings.errors.noise_before,
                "noise_after": findings.errors.noise_after,
            },
            "accuracy": {
                m.label: {"value": m.evaluation.accuracy.value, "interval": bounds(m.evaluation.accuracy.interval)}
                for m in findings.models
            },
            "length_baseline": findings.models[0].evaluation.length_baseline,
            "curated_minus_raw": bounds(findings.difference),
            "policy": {
                "before": trained.before.to_dict() if trained.before else None,
                "after": trained.after.to_dict() if trained.after else None,
                "artifact": trained.policy_artifact,
            },
            "snapshots": findings.snapshots,
            "seconds": findings.seconds,
        }


def run_demo(folder: Path, *, quick: bool, seed: int, say: Callable[[str], None]) -> DemoOutcome:
    """Create a workspace in `folder`, run the demo in it and write its report.

    Raises BadInputError for a folder that holds something already, and all that the parts raise.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError("is not an empty folder; the demo creates its own workspace", file=folder)
    config = DemoConfig.quick(seed) if quick else DemoConfig.full(seed)
    workspace = Workspace.create(folder)
    say(f"workspace: {workspace.root}")
    findings = run_pipeline(workspace, config, say)
    report = workspace.reports / "demo.html"
    with start_run(workspace, "report", {"demo": findings.run_id}, inputs={findings.run_id: "run"}) as run:
        write(compose(findings, workspace), report)
        digest = hashlib.sha256(report.read_bytes()).hexdigest()[:32]
        run.add_artifact("report", report.name, report, content_hash=digest)
    return DemoOutcome(report, workspace.root, findings)
