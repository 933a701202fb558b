"""A folder for `datasets.load_dataset`: Parquet in the configurations `pairs` and `judgments`, and a data card.

Metadata of the sources, record ids, times and decisions' reasons are left out, because they can name people.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict

from assay_pipelines.exporters.card import card, facts_of
from assay_pipelines.exporters.job import CHOSEN, JUDGMENTS, PAIRS, REJECTED, RESOLVED, ExportFormat, ExportJob, Written
from assay_pipelines.exporters.message_forms import EVERYTHING, MessageForm

MARKER = "assay-export.json"  #: marks the folder as an export, which a later one may replace


def write_folder(job: ExportJob) -> Written:
    for name in ("pairs", "judgments"):
        (job.target / name).mkdir()
    columns = job.forms.columns(images=_embedded_images(job))
    pairs = job.copy(
        f"""SELECT prompt, {CHOSEN} AS chosen, {REJECTED} AS rejected, comparison_id, source, category, license,
                   language, margin, {columns}pool
            FROM {PAIRS} ORDER BY comparison_id""",
        job.target / "pairs" / "train.parquet",
        ".parquet",
    )
    sides = "turns_a AS response_a, turns_b AS response_b" if job.forms.typed else "response_a, response_b"
    reason = "j.rationale" if job.rationales else "NULL::VARCHAR"
    judgments = job.copy(
        f"""SELECT comparison_id, prompt, {sides}, {columns}{job.pseudonyms.name()} AS annotator,
                   n.kind, j.answer, j.strength, j.confidence, j.shown_order, {reason} AS rationale
            FROM {RESOLVED} JOIN {JUDGMENTS} j USING (comparison_id) JOIN annotators n USING (annotator_id)
            ORDER BY comparison_id, annotator""",
        job.target / "judgments" / "train.parquet",
        ".parquet",
    )
    facts = facts_of(job, judgments)
    (job.target / MARKER).write_text(json.dumps(asdict(facts), indent=1, default=str) + "\n", encoding="utf-8")
    (job.target / "README.md").write_text(card(facts), encoding="utf-8")
    return Written(pairs, (f"{judgments} judgments",))


def _embedded_images(job: ExportJob) -> str:
    """SQL: the images of a row as `datasets` has them, {bytes, path}, in place of files."""
    if not job.copies.written:
        return ""
    folder = job.copies.folder
    job.db.execute("CREATE OR REPLACE TEMP TABLE image_files (path VARCHAR, content BLOB)")
    for path in folder.iterdir():
        job.db.execute("INSERT INTO image_files VALUES (?, ?)", [f"{folder.name}/{path.name}", path.read_bytes()])
    shutil.rmtree(folder)
    places = "SELECT unnest(images) AS path, unnest(range(len(images))) AS place"
    listed = "list({'bytes': content, 'path': path} ORDER BY place)"
    return f"(SELECT {listed} FROM ({places}) JOIN image_files USING (path)) AS images"


HUGGING_FACE = ExportFormat((), write_folder, form=MessageForm(EVERYTHING))
