"""NeMo-RL's ranked form, read by its PreferenceDataset: a context and two completions, rank 0 the better one."""

from __future__ import annotations

from assay_pipelines.exporters.job import CHOSEN, LINES, PAIRS, REJECTED, ExportFormat, ExportJob, Written


def write_nemo_rl(job: ExportJob) -> Written:
    completions = f"[{{'rank': 0, 'completion': {CHOSEN}}}, {{'rank': 1, 'completion': {REJECTED}}}] AS completions"
    about = "comparison_id AS id, source, category"
    return Written(job.copy(f"SELECT prompt AS context, {completions}, {about} FROM {PAIRS} ORDER BY comparison_id"))


NEMO_RL = ExportFormat(LINES, write_nemo_rl)
