"""The demo's curation: from the noisy file to curated snapshots, and how many injected errors were caught.

Covers: import, clean, dedup, gold by the verifier, the reward-model pass, and the comparison with what was injected
(which only the demo knows). Leaves out: training the reward models between those steps (`pipeline`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from assay.browsing.candidates import count_candidates
from assay.data.snapshots import HashSlice, Selection
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import ConsistencyConfig, ConsistencyReport, Judge, check_pool
from assay_pipelines.curation.verifier import VerifierReport, verify_pool
from assay_pipelines.hygiene.cleaning import CleanConfig, clean
from assay_pipelines.hygiene.deduplication import DedupCounts, dedup
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_web.demo.source import Injected

SOURCE, HELDOUT = "demo-source", "demo-heldout"


@dataclass(frozen=True)
class Hygiene:
    """Comparisons that cleaning discarded, by rule, and what de-duplication found."""

    cleaned: dict[str, int]
    duplicates: DedupCounts


@dataclass(frozen=True)
class ErrorDetection:
    """The injected label errors against curation's decisions, over the pairs of the noisy source.

    An error is caught when its label was corrected, flipped or discarded; `false_alarms` are right labels changed or
    discarded in the same way. `wrong_after` of the `kept` labels that training reads are wrong.
    """

    pairs: int
    errors: int
    caught: int
    false_alarms: int
    kept: int
    wrong_after: int

    @property
    def recall(self) -> float:
        return self.caught / self.errors

    @property
    def precision(self) -> float | None:
        flagged = self.caught + self.false_alarms
        return self.caught / flagged if flagged else None

    @property
    def noise_before(self) -> float:
        return self.errors / self.pairs

    @property
    def noise_after(self) -> float | None:
        return self.wrong_after / self.kept if self.kept else None


def import_file(workspace: Workspace, file: Path) -> ImportReport:
    source = open_import(workspace, ImportConfig(str(file), format="normalised"))
    with progress_bar(f"importing {file.name}", source.container.size) as advance:
        return run_import(workspace, source, advance=advance)


def clean_and_dedup(workspace: Workspace, config: CleanConfig) -> Hygiene:
    """Clean and de-duplicate the whole store."""
    with start_run(workspace, "clean", asdict(config)) as run:
        cleaned = clean(workspace, config, run.id)
    with start_run(workspace, "dedup", {}) as run:
        duplicates = dedup(workspace, run.id)
    return Hygiene(cleaned, duplicates)


def verify_source(workspace: Workspace, source: str, *, share: float, seed: int) -> VerifierReport:
    """Gold by the verifier, on a share of the source's prompts."""
    part = HashSlice(0.0, share, "prompt", seed) if share < 1 else None
    selection = Selection(("unverified",), (source,), slice=part)
    with (
        start_run(workspace, "curate-verify", {"selection": asdict(selection)}) as run,
        progress_bar("verifying", count_candidates(workspace, selection), unit="pairs") as advance,
    ):
        report = verify_pool(workspace, selection, run.id, on_progress=advance)
        run.metrics.update(asdict(report))
    return report


def consistency_pass(workspace: Workspace, judge: Judge, config: ConsistencyConfig) -> ConsistencyReport:
    """The consistency pass over what is still unverified of the noisy source."""
    selection = Selection(("unverified",), (SOURCE,))
    with (
        start_run(workspace, "curate-consistency", asdict(config)) as run,
        progress_bar("scoring", count_candidates(workspace, selection), unit="pairs") as advance,
    ):
        run.link("input", "model_version", judge.scorer.info.version)
        report = check_pool(workspace, [judge], config, selection, run.id, on_progress=advance)
        run.metrics.update(asdict(report))
    return report


def detected_errors(workspace: Workspace, injected: Injected) -> ErrorDetection:
    """Compare the decisions in force with the injected truth. Repeated rows count once, under their own record."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT o.record_id, p.pool, p.label, s.label
               FROM origins o JOIN pools p USING (comparison_id) JOIN source_labels s USING (comparison_id)
               WHERE o.source = ?""",
            [SOURCE],
        ).fetchall()
    pairs = errors = caught = alarms = retained = wrong = 0
    for record, pool, label, source_label in rows:
        if "-again" in record or pool in ("unverified", "pending") or label == "tie":
            continue  # undecided: neither caught nor missed
        pairs += 1
        is_error = record in injected.flipped
        errors += is_error
        flagged = pool == "discarded" or label != source_label
        caught += flagged and is_error
        alarms += flagged and not is_error
        if pool in ("gold", "silver", "recycled"):
            retained += 1
            wrong += (label == source_label) == is_error
    return ErrorDetection(pairs, errors, caught, alarms, retained, wrong)
