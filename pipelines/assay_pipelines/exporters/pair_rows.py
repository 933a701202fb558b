"""Pairs in the forms of TRL, OpenRLHF and NeMo-RL: conversations as lists of messages.

- TRL: explicit (prompt, chosen, rejected) and implicit (complete chosen and rejected). The column `margin` is there
  only if every pair has one: TRL's collator makes a tensor of it and fails at a null.
- OpenRLHF's reward-model rows are read with `--apply_chat_template` and no `--prompt_key`; a null margin counts as 0.
  Its RewardDataset gives the chat template messages and nothing else: no tools, no images.
- NeMo-RL's ranked form, read by its PreferenceDataset: a context and two completions, rank 0 the better one.
"""

from assay_pipelines.exporters.job import CHOSEN, LINES, PAIRS, REJECTED, ExportFormat, ExportJob, Written
from assay_pipelines.exporters.message_forms import EVERYTHING, MessageForm

_WHOLE = f"list_concat(prompt, {CHOSEN}) AS chosen, list_concat(prompt, {REJECTED}) AS rejected"


def _copy(job: ExportJob, columns: str, notes: tuple[str, ...] = ()) -> Written:
    return Written(job.copy(f"SELECT {columns} FROM {PAIRS} ORDER BY comparison_id"), notes)


def _write_trl(job: ExportJob, sides: str) -> Written:
    counts = job.counts
    margin = "margin, " if counts.margins == counts.pairs else ""
    lacking = f"no column margin: {counts.pairs - counts.margins} of {counts.pairs} pairs have none"
    notes = (lacking,) if counts.margins and not margin else ()
    return _copy(job, f"{sides}, {job.forms.columns()}comparison_id, source, category, {margin}pool", notes)


def write_explicit(job: ExportJob) -> Written:
    return _write_trl(job, f"prompt, {CHOSEN} AS chosen, {REJECTED} AS rejected")


def write_implicit(job: ExportJob) -> Written:
    return _write_trl(job, _WHOLE)


def write_openrlhf(job: ExportJob) -> Written:
    return _copy(job, f"{_WHOLE}, margin, comparison_id, source, category, pool")


def write_nemo_rl(job: ExportJob) -> Written:
    completions = f"[{{'rank': 0, 'completion': {CHOSEN}}}, {{'rank': 1, 'completion': {REJECTED}}}] AS completions"
    return _copy(job, f"prompt AS context, {completions}, comparison_id AS id, source, category")


TRL = ExportFormat(LINES, write_explicit, form=MessageForm(EVERYTHING))
TRL_IMPLICIT = ExportFormat(LINES, write_implicit, form=MessageForm(EVERYTHING))
OPENRLHF = ExportFormat(
    LINES, write_openrlhf, form=MessageForm(frozenset({"thinking", "tool_call", "tool_result"}), equal_keys=True)
)
NEMO_RL = ExportFormat(LINES, write_nemo_rl, form=MessageForm())
