"""Pre-verification: a model checks the responses of objective pairs one at a time, before a person sees the pair.

As in Skywork-Reward-V2: shown alone, a response cannot look right beside a worse one. A check is a hint for annotators;
it makes no decision and is separate from `principle_judgments`, which come from annotators' feedback.
"""

from collections.abc import Sequence
from pathlib import Path

from assay import ids
from assay.data.response_checks import Verdict
from assay.domain import Prompt, Response, response_text
from assay.runs.progress_bar import Advance, silent
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import ModelCall
from assay_pipelines.llm.prompted_model import PromptedModel
from assay_pipelines.llm.prompts import mark, turns
from assay_pipelines.llm.questions import Question
from assay_pipelines.llm.replies import StrictAnswer
from assay_pipelines.llm.sweep import SweepReport, sweep

TASK = "correctness"


class CorrectnessAnswer(StrictAnswer):
    reasoning: str
    verdict: Verdict


class CorrectnessChecker(PromptedModel):
    def __init__(self, endpoint: EndpointConfig, prompts: Path | None = None) -> None:
        super().__init__(TASK, endpoint, prompts)

    def call(self, prompt: Prompt, response_id: str, response: Response) -> ModelCall[CorrectnessAnswer]:
        seen = turns(prompt)
        return self.ask(
            response_id, CorrectnessAnswer, turns=seen, response=response_text(response), mark=mark(response_id)
        )


def preverify(
    workspace: Workspace,
    checker: CorrectnessChecker,
    questions: Sequence[Question],
    run_id: str | None,
    *,
    every_pair: bool = False,
    budget: Budget | Spending | None = None,
    advance: Advance = silent,
) -> SweepReport:
    """Check both responses of every question whose attributes say objective (`every_pair`: of all). As
    `judging.asking.ask`, but `asked`, `answered`, `known`, `advance` and the budget's questions count responses."""
    annotator = checker.annotator
    responses: dict[str, tuple[Prompt, Response]] = {}
    for question in questions:
        if every_pair or (question.attributes is not None and question.attributes.objectivity == "objective"):
            prompt_id = ids.prompt_id(question.prompt)
            for text in (question.response_a, question.response_b):
                responses[ids.response_id(prompt_id, text)] = (question.prompt, text)
    with workspace.store.unit() as db:
        annotator.write(db)
        rows = db.execute(
            """SELECT response_id FROM response_checks JOIN (SELECT unnest($ids) AS response_id) USING (response_id)
               WHERE annotator_id = $annotator""",
            {"ids": list(responses), "annotator": annotator.id},
        ).fetchall()
    checked_before = {row[0] for row in rows}
    advance(len(checked_before))

    def write(batch: Sequence[tuple[str, CorrectnessAnswer]]) -> None:
        _store(workspace, annotator.id, batch, run_id)

    calls = [
        checker.call(p, response, text) for response, (p, text) in responses.items() if response not in checked_before
    ]
    return sweep(
        workspace,
        checker.endpoint,
        annotator,
        calls,
        write,
        run_id,
        already_stored=len(checked_before),
        budget=budget,
        advance=advance,
    )


def _store(
    workspace: Workspace, annotator: str, batch: Sequence[tuple[str, CorrectnessAnswer]], run_id: str | None
) -> None:
    import pyarrow as pa

    rows = dict(batch)
    table = pa.table(
        {
            "response_id": list(rows),
            "verdict": [answer.verdict for answer in rows.values()],
            "reason": [answer.reasoning.strip() for answer in rows.values()],
        }
    )
    with workspace.store.unit() as db, registered(db, "incoming", table):
        db.execute(
            """INSERT INTO response_checks (response_id, annotator_id, verdict, reason, run_id)
               SELECT i.response_id, $annotator, i.verdict, i.reason, $run FROM incoming i
               WHERE NOT EXISTS (SELECT 1 FROM response_checks r
                                 WHERE r.response_id = i.response_id AND r.annotator_id = $annotator)""",
            {"annotator": annotator, "run": run_id},
        )
