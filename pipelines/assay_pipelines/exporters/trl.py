"""TRL's conversational forms: explicit (prompt, chosen, rejected) and implicit (complete chosen and rejected).

The column `margin` is there only if every pair has one: TRL's collator makes a tensor of it and fails at a null.
"""

from __future__ import annotations

from assay_pipelines.exporters.job import CHOSEN, LINES, PAIRS, REJECTED, ExportFormat, ExportJob, Written

_ABOUT = "comparison_id, source, category, {margin} pool"


def write_explicit(job: ExportJob) -> Written:
    margin, notes = _margin(job)
    about = _ABOUT.format(margin=margin)
    sides = f"{CHOSEN} AS chosen, {REJECTED} AS rejected"
    return Written(job.copy(f"SELECT prompt, {sides}, {about} FROM {PAIRS} ORDER BY comparison_id"), notes)


def write_implicit(job: ExportJob) -> Written:
    margin, notes = _margin(job)
    about = _ABOUT.format(margin=margin)
    sides = f"list_concat(prompt, {CHOSEN}) AS chosen, list_concat(prompt, {REJECTED}) AS rejected"
    return Written(job.copy(f"SELECT {sides}, {about} FROM {PAIRS} ORDER BY comparison_id"), notes)


def _margin(job: ExportJob) -> tuple[str, tuple[str, ...]]:
    counts = job.counts
    if counts.margins == counts.pairs:
        return "margin,", ()
    if not counts.margins:
        return "", ()
    return "", (f"no column margin: {counts.pairs - counts.margins} of {counts.pairs} pairs have none",)


TRL = ExportFormat(LINES, write_explicit)
TRL_IMPLICIT = ExportFormat(LINES, write_implicit)
