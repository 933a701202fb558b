"""An extractor that asks a language model at a chat endpoint; in its answer the quote comes before the principle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import field_validator

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.calls import CallLog
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import Answered, ModelCall, Outcome
from assay_pipelines.llm.prompted_model import PromptedModel
from assay_pipelines.llm.prompts import mark, turns
from assay_pipelines.llm.replies import StrictAnswer
from assay_pipelines.principles.extraction import (
    ExtractedPrinciple,
    ExtractionFailure,
    ExtractorOptions,
    Feedback,
    Reading,
)

TASK = "principles"


class FoundPrinciple(StrictAnswer):
    """The quote comes first: a model that quotes before it names the principle invents less."""

    evidence: str
    principle: str
    fulfilment: Literal["yes", "no", "partially"]

    @field_validator("principle")
    @classmethod
    def _check_not_empty(cls, principle: str) -> str:
        if not principle.strip():
            raise ValueError("must not be empty")
        return principle.strip()


class FoundPrinciples(StrictAnswer):
    items: list[FoundPrinciple]


class LlmExtractor(PromptedModel):
    """Extracts principles with a language model. `workspace` records the calls; an answered call is not repeated."""

    def __init__(
        self,
        endpoint: EndpointConfig,
        workspace: Workspace,
        *,
        prompts: Path | None = None,
        spending: Spending | None = None,
    ) -> None:
        super().__init__(TASK, endpoint, prompts, prefix=f"{TASK}-")
        self.workspace, self.spending = workspace, spending or Spending()
        self.page = 32 * endpoint.concurrency  # small: visible progress; large: the endpoint stays busy

    @property
    def name(self) -> str:
        return self.annotator.name

    def read(self, feedback: Sequence[Feedback], run_id: str | None) -> tuple[list[Reading], str | None]:
        """As `PrincipleExtractor`. Raises BackendError where the endpoint refuses every call."""
        unread = ExtractionFailure("not_asked", "the pass ended before it", final=False)
        readings: list[Reading] = [unread] * len(feedback)

        def finish(index: int, outcomes: Sequence[Outcome[FoundPrinciples]]) -> None:
            readings[index] = _reading(outcomes[0])

        with self.workspace.store.unit() as db:
            self.annotator.write(db)
        with CallLog(self.workspace, self.annotator.id) as log:
            items = [[self.call(text)] for text in feedback]
            stopped = self.endpoint.ask_all(items, finish, log=log, spending=self.spending, run_id=run_id)
        return readings, stopped

    def call(self, text: Feedback) -> ModelCall[FoundPrinciples]:
        return self.ask(
            text.feedback_id,
            FoundPrinciples,
            turns=turns(text.prompt),
            response=text.response,
            feedback=text.content,
            mark=mark(text.response, text.content),
        )


def openai_extractor(options: ExtractorOptions) -> LlmExtractor:
    """The registry's extractor `openai`. Raises BadInputError without an endpoint."""
    if options.endpoint is None:
        raise BadInputError("--extractor openai needs --base-url and --model; --extractor lexicon needs neither")
    return LlmExtractor(options.endpoint, options.workspace, prompts=options.prompts, spending=options.spending)


def _reading(outcome: Outcome[FoundPrinciples]) -> Reading:
    if isinstance(outcome, Answered):
        return tuple(
            ExtractedPrinciple(extracted.principle, extracted.fulfilment, extracted.evidence)
            for extracted in outcome.value.items
        )
    return ExtractionFailure(outcome.code, outcome.message, final=outcome.was_sent and not outcome.passing)
