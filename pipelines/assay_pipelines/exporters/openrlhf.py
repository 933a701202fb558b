"""OpenRLHF's reward-model rows, read with `--apply_chat_template` and no `--prompt_key`; a null margin counts as 0."""

from __future__ import annotations

from assay_pipelines.exporters.job import CHOSEN, LINES, PAIRS, REJECTED, ExportFormat, ExportJob, Written


def write_openrlhf(job: ExportJob) -> Written:
    sides = f"list_concat(prompt, {CHOSEN}) AS chosen, list_concat(prompt, {REJECTED}) AS rejected"
    about = "margin, comparison_id, source, category, pool"
    return Written(job.copy(f"SELECT {sides}, {about} FROM {PAIRS} ORDER BY comparison_id"))


OPENRLHF = ExportFormat(LINES, write_openrlhf)
