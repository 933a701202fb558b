"""A judge of whose replies most could not be read: what a person is told after a run.

Leaves out: single failures, which every report counts; guessing the profile (`assay_serving.generative.profiles`).
"""

from assay.workspace import Workspace
from assay_pipelines.judging.generative import GenerativeJudge
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.openai_compatible import LlmJudge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.sweep import SweepReport
from assay_serving.generative.profiles.recognition import KEPT, UnreadReplies

UNREADABLE = ("bad_answer", "truncated", "unparsable")


def unread_line(workspace: Workspace, judge: Judge, run_id: str, report: SweepReport) -> str | None:
    """What happened, with an example and the profile that the replies look like; None where most could be read."""
    failed = sum(report.failures.get(code, 0) for code in UNREADABLE)
    if 2 * failed <= report.answered + failed:
        return None
    if isinstance(judge, LlmJudge):
        replies = _recorded(workspace, judge, run_id)
        form = judge.profile.form if judge.profile else None
        return replies.line(judge.name, form.name if form else "JSON", form.responses if form else 2)
    if isinstance(judge, GenerativeJudge):
        return judge.replies.line(judge.name, judge.pairwise.form.name, 2)
    return f"{failed} of {report.answered + failed} comparisons: no reply of {judge.name} could be read"


def _recorded(workspace: Workspace, judge: LlmJudge, run_id: str) -> UnreadReplies:
    """The replies of the run, of its record of calls."""
    where = "FROM model_calls WHERE run_id = $run AND annotator_id = $annotator AND status = 200"
    keys = {"run": run_id, "annotator": annotator_of(judge).id}
    with workspace.store.unit() as db:
        counts = db.execute(
            f"SELECT count(*), count(*) FILTER (list_contains($codes, outcome)) {where}",
            {**keys, "codes": list(UNREADABLE)},
        ).fetchone()
        texts = db.execute(
            f"""SELECT response {where} AND list_contains($codes, outcome) AND response IS NOT NULL
                ORDER BY created_at, call_id LIMIT {KEPT}""",
            {**keys, "codes": list(UNREADABLE)},
        ).fetchall()
    replies, unread = counts or (0, 0)
    return UnreadReplies(replies, unread, [text for (text,) in texts])
