"""The five attributes by a language model: strict JSON, one retry, every failure counted."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from assay.data.pair_attributes import PairAttributes, store_attributes
from assay.domain import response_text
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import ModelCall
from assay_pipelines.llm.prompted_model import PromptedModel
from assay_pipelines.llm.prompts import mark, turns
from assay_pipelines.llm.questions import Question, orders
from assay_pipelines.llm.replies import StrictAnswer
from assay_pipelines.llm.sweep import SweepReport, sweep

TASK = "attributes"
SEED = 0  #: decides which response is shown first
_TEXT = r"\S"
_NUMBERED = re.compile(r"\b(candidate|response|answer)s? [12]\b", re.IGNORECASE)


class AttributesAnswer(StrictAnswer):
    task_category: str = Field(pattern=_TEXT, max_length=60)
    objectivity: Literal["objective", "subjective"]
    controversiality: Literal["low", "medium", "high"]
    desired: str = Field(pattern=_TEXT, max_length=1000)
    guideline: str = Field(pattern=_TEXT, max_length=2000)

    @field_validator("desired", "guideline")
    @classmethod
    def _nameless(cls, text: str) -> str:
        # Judges that read it later see the two in another order.
        if _NUMBERED.search(text):
            raise ValueError("must not name the candidates by number; write 'one response', 'the other'")
        return text

    @property
    def attributes(self) -> PairAttributes:
        fields = {name: text.strip() for name, text in self.model_dump().items()}
        return PairAttributes.of(fields | {"task_category": fields["task_category"].lower()})


class AttributeExtractor(PromptedModel):
    """Describes pairs by a model."""

    def __init__(self, endpoint: EndpointConfig, prompts: Path | None = None) -> None:
        super().__init__(TASK, endpoint, prompts, {"seed": SEED})

    def call(self, question: Question) -> ModelCall[AttributesAnswer]:
        (order,) = orders(question.comparison_id, 0, SEED, both=False)
        first, second = response_text(question.response_a), response_text(question.response_b)
        if order == "BA":
            first, second = second, first
        return self.ask(
            question.comparison_id,
            AttributesAnswer,
            order,
            turns=turns(question.prompt),
            candidate_1=first,
            candidate_2=second,
            mark=mark(question.comparison_id),
        )


def extract_attributes(
    workspace: Workspace,
    extractor: AttributeExtractor,
    questions: Sequence[Question],
    run_id: str | None,
    *,
    budget: Budget | Spending | None = None,
    advance: Advance = silent,
) -> SweepReport:
    """Request the attributes of the comparisons that this annotator has not described. As `judging.asking.ask`."""
    annotator = extractor.annotator
    with workspace.store.unit() as db:
        annotator.write(db)
        rows = db.execute(
            """SELECT DISTINCT comparison_id FROM attributes JOIN (SELECT unnest($ids) AS comparison_id)
               USING (comparison_id) WHERE annotator_id = $annotator""",
            {"ids": [q.comparison_id for q in questions], "annotator": annotator.id},
        ).fetchall()
    described_before = {row[0] for row in rows}
    todo = list({q.comparison_id: q for q in questions if q.comparison_id not in described_before}.values())
    advance(len(questions) - len(todo))

    def write(batch: Sequence[tuple[str, AttributesAnswer]]) -> None:
        described = {comparison: answer.attributes for comparison, answer in batch}
        store_attributes(workspace, annotator.id, described, run_id)

    calls = [extractor.call(question) for question in todo]
    return sweep(
        workspace,
        extractor.endpoint,
        annotator,
        calls,
        write,
        run_id,
        already_stored=len(described_before),
        budget=budget,
        advance=advance,
    )
