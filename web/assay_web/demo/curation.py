"""The demo's curation: from the raw file to curated snapshots, and how many wrong labels were caught.

Covers: import, clean, dedup, gold by the verifier, the passes by source reliability, and the comparison with the truth
(which only the demo knows). Leaves out: the reward models (`reward_models`), the order of the steps (`pipeline`).
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from assay.browsing.candidates import count_candidates
from assay.data.snapshots import HashSlice, Selection
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.curation.loop.held_out import Refit
from assay_pipelines.curation.loop.pass_config import RelabelConfig, SourcePassConfig
from assay_pipelines.curation.loop.relabelling import RelabelReport, run_relabelling
from assay_pipelines.curation.loop.reward_models import LoopModel
from assay_pipelines.curation.loop.source_pass import SourcePassReport, run_source_pass
from assay_pipelines.curation.reliability.estimates import SourceReliability, reliabilities
from assay_pipelines.curation.verifier import VerifierReport, verify_pool
from assay_pipelines.hygiene.cleaning import CleanConfig, clean
from assay_pipelines.hygiene.deduplication import DedupCounts, dedup
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_web.demo.source import SourceTruth

HELDOUT = "heldout"


@dataclass(frozen=True)
class Hygiene:
    """Comparisons that cleaning discarded, by rule, and what de-duplication found."""

    cleaned: dict[str, int]
    duplicates: DedupCounts


@dataclass(frozen=True)
class ErrorDetection:
    """The wrong labels of the sources against curation's decisions.

    An error is caught when its label was corrected, relabelled or discarded; `false_alarms` are right labels
    changed or discarded in the same way. `wrong_after` of the `kept` labels that training reads are wrong.
    """

    pairs: int
    errors: int
    caught: int
    false_alarms: int
    kept: int
    wrong_after: int

    @property
    def recall(self) -> float | None:
        return self.caught / self.errors if self.errors else None

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


def verify_sources(workspace: Workspace, sources: tuple[str, ...], *, share: float, seed: int) -> VerifierReport:
    """Gold by the verifier, on a share of the sources' prompts."""
    part = HashSlice(0.0, share, "prompt", seed) if share < 1 else None
    selection = Selection(("unverified",), sources, slice=part)
    with (
        start_run(workspace, "curate-verify", {"selection": asdict(selection)}) as run,
        progress_bar("verifying", count_candidates(workspace, selection), unit="pairs") as advance,
    ):
        report = verify_pool(workspace, selection, run.id, on_progress=advance)
        run.metrics.update(asdict(report))
    return report


def source_reliabilities(workspace: Workspace, names: tuple[str, ...]) -> list[SourceReliability]:
    """What each source is worth on gold, over all categories, in the order of `names`."""
    with workspace.store.unit() as db:
        by_name = {r.name: r for r in reliabilities(db).overall.values() if r.kind == "source"}
    return [by_name[name] for name in names if name in by_name]


def source_pass(workspace: Workspace, config: SourcePassConfig, sources: tuple[str, ...]) -> SourcePassReport:
    """What `assay curate sources` does with the labels of `sources` that no verifier decided."""
    selection = Selection(("unverified",), sources)
    with (
        start_run(workspace, "curate-sources", asdict(config)) as run,
        progress_bar("sources", count_candidates(workspace, selection), unit="pairs") as advance,
    ):
        report = run_source_pass(workspace, config, selection, run.id, advance=advance)
        run.metrics.update(asdict(report))
    return report


def relabel(
    workspace: Workspace, config: RelabelConfig, model: LoopModel, refit: Refit, todo: int
) -> RelabelReport | str:
    """What `assay curate relabel` does with the `todo` labels of sources at chance; where gold says that the model is
    no better than they are, why it was refused."""
    try:
        with (
            start_run(workspace, "curate-relabel", asdict(config)) as run,
            progress_bar("relabelling", todo, unit="pairs") as advance,
        ):
            report = run_relabelling(workspace, config, model, run.id, refit=refit, advance=advance)
            run.metrics.update(asdict(report))
        return report
    except BadInputError as refused:
        return str(refused)


def detected_errors(workspace: Workspace, truth: SourceTruth) -> ErrorDetection:
    """Compare the decisions in force with the truth. Repeated rows count once, under their own record."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT o.record_id, p.pool, p.label, s.label
               FROM origins o JOIN pools p USING (comparison_id) JOIN source_labels s USING (comparison_id)
               WHERE list_contains($sources, o.source)""",
            {"sources": sorted(set(truth.source.values()))},
        ).fetchall()
    pairs = errors = caught = alarms = retained = wrong = 0
    for record, pool, label, source_label in rows:
        if record not in truth.source or pool in ("unverified", "pending") or label == "tie":
            continue  # a row that the file repeats, or undecided: neither caught nor missed
        pairs += 1
        is_error = record in truth.wrong
        errors += is_error
        flagged = pool == "discarded" or label != source_label
        caught += flagged and is_error
        alarms += flagged and not is_error
        if pool in ("gold", "silver", "recycled"):
            retained += 1
            wrong += (label == source_label) == is_error
    return ErrorDetection(pairs, errors, caught, alarms, retained, wrong)
