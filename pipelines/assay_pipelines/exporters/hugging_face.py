"""A folder for `datasets.load_dataset`: Parquet in the configurations `pairs` and `judgments`, and a data card.

Metadata of the sources, record ids, times and decisions' reasons are left out, because they can name people.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from assay_pipelines.exporters.card import card, facts_of
from assay_pipelines.exporters.job import CHOSEN, JUDGMENTS, PAIRS, REJECTED, RESOLVED, ExportFormat, ExportJob, Written

MARKER = "assay-export.json"  #: marks the folder as an export, which a later one may replace


def write_folder(job: ExportJob) -> Written:
    for name in ("pairs", "judgments"):
        (job.target / name).mkdir()
    pairs = job.copy(
        f"""SELECT prompt, {CHOSEN} AS chosen, {REJECTED} AS rejected, comparison_id, source, category, license,
                   language, margin, pool
            FROM {PAIRS} ORDER BY comparison_id""",
        job.target / "pairs" / "train.parquet",
        ".parquet",
    )
    reason = "j.rationale" if job.rationales else "NULL::VARCHAR"
    judgments = job.copy(
        f"""SELECT comparison_id, prompt, response_a, response_b, {job.pseudonyms.name()} AS annotator, n.kind,
                   j.answer, j.strength, j.confidence, j.shown_order, {reason} AS rationale
            FROM {RESOLVED} JOIN {JUDGMENTS} j USING (comparison_id) JOIN annotators n USING (annotator_id)
            ORDER BY comparison_id, annotator""",
        job.target / "judgments" / "train.parquet",
        ".parquet",
    )
    facts = facts_of(job, judgments)
    (job.target / MARKER).write_text(json.dumps(asdict(facts), indent=1, default=str) + "\n", encoding="utf-8")
    (job.target / "README.md").write_text(card(facts), encoding="utf-8")
    return Written(pairs, (f"{judgments} judgments",))


HUGGING_FACE = ExportFormat((), write_folder)
