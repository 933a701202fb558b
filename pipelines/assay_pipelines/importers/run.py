"""An import as a recorded run: a source's batches into the store, one short unit of work each; repeating resumes it."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from assay.data.prefetch import prefetch
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.runs.record import start_run
from assay.store.feedback_intake import FeedbackCounts, store_feedback, store_principle_judgments, store_rated
from assay.store.intake import IntakeCounts, store_pairs, store_rejects
from assay.store.media import insert_media
from assay.workspace import Workspace
from assay_pipelines.importers.preview import column_use
from assay_pipelines.importers.source import ImportConfig, ImportSource, open_source

FIRST_REJECTS = 5


@dataclass
class ImportReport:
    """Counts of an import. `pairs`: new comparisons and those that the store had already. `statements`: feedback,
    principle judgments, ratings, and labels of steps and spans.
    """

    run_id: str
    file: str
    recognised: str
    rows: int = 0
    pairs: int = 0
    statements: int = 0
    dialogues: int = 0  #: pairs of conversations that part before their last turns: responses with the user's turns
    images: int = 0  #: new to the workspace
    unfetched_images: int = 0
    new: IntakeCounts = field(default_factory=IntakeCounts)
    new_statements: FeedbackCounts = field(default_factory=FeedbackCounts)
    rejected: dict[str, int] = field(default_factory=dict)
    first_rejects: list[str] = field(default_factory=list)  #: where the first bad rows are; all are in `rejects`
    unused: list[str] = field(default_factory=list)  #: columns that nothing was read of


def open_import(workspace: Workspace, config: ImportConfig) -> ImportSource:
    """Open the source and choose its layout, before a run is recorded. Raises BadInputError."""
    return open_source(config, spill=workspace.root / "assay.duckdb.spill", media=workspace.media)


def run_import(workspace: Workspace, source: ImportSource, *, advance: Advance = silent) -> ImportReport:
    """Import everything the source yields. `advance` is called in the container's unit.

    Raises BadInputError if no row could be imported; the rejects are recorded nevertheless.
    """
    reasons: Counter[str] = Counter()
    file = _full_name(source)
    with start_run(workspace, "import", asdict(source.config), inputs={file: "file"}) as run:
        report = ImportReport(run.id, source.config.path, source.recognised, unused=list(column_use(source).unused))
        at = 0
        for batch, position in prefetch((batch, source.container.position()) for batch in source.batches()):
            with workspace.store.unit() as db:
                report.images += insert_media(db, batch.media, run.id)
                if batch.pairs.num_rows:
                    report.new += store_pairs(db, batch.pairs, run.id)
                if batch.feedback is not None:
                    report.new_statements += store_feedback(db, batch.feedback, run.id)
                    report.statements += batch.feedback.num_rows
                if batch.principles is not None:
                    report.new_statements += store_principle_judgments(db, batch.principles, run.id)
                    report.statements += batch.principles.num_rows
                if batch.rated is not None:
                    report.new_statements += store_rated(db, batch.rated, run.id)
                    report.statements += said_in(batch.rated)
                if batch.rejects.num_rows:
                    store_rejects(db, batch.rejects, file=file, run_id=run.id)
            report.rows += batch.rows
            report.dialogues += batch.dialogues
            report.pairs += batch.pairs.num_rows
            for reject in batch.rejects.select(["row", "field", "reason"]).to_pylist():
                reason = f"{reject['field']}: {reject['reason']}" if reject["field"] else reject["reason"]
                reasons[reason] += 1
                if len(report.first_rejects) < FIRST_REJECTS:
                    report.first_rejects.append(f"row {reject['row']}: {reason}")
            advance(position - at)
            at = position
        report.unfetched_images = source.images.unfetched
        report.rejected = dict(reasons.most_common())
        run.metrics.update(asdict(report))
        if not report.pairs + report.statements:
            worst, times = reasons.most_common(1)[0] if reasons else ("nothing to import", 0)
            raise BadInputError(f"no row could be imported: {times} of {report.rows} because of {worst!r}", file=file)
    return report


def said_in(rated: pa.RecordBatch) -> int:
    """How many ratings and labels of steps and spans a batch of `rated_schema()` holds."""
    return sum(int(pc.sum(pc.list_value_length(rated[column])).as_py() or 0) for column in ("ratings", "marks"))


def _full_name(source: ImportSource) -> str:
    path = Path(source.config.path).expanduser()
    return str(path.resolve()) if path.exists() else source.config.path
