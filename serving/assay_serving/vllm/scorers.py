"""Scalar and principle models as scorers over an engine of rows, in process or remote.

Leaves out: conversations, failures and the score (`assay_serving.engines.token`, shared with the reference engine), the
engines (`in_process`, `vllm_server`, `sglang_server`), loading (`engine_loader`).
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_serving.engines.token import PrincipleReader, Reading, ScalarReader, TokenScorer
from assay_serving.vllm.rows import Classifier, Fault, LanguageModel, Row, RunningModel


class RowScalarScorer(ScalarReader):
    """Scores with a sequence classifier of one label: the reward is its raw logit."""

    def __init__(self, engine: Classifier, renderer: Renderer, spec: RewardModelSpec, *, name: str) -> None:
        """Raises BadInputError for a model whose reward is more than one logit at the conversation's end."""
        self.engine = engine
        super().__init__(renderer, spec_as_served(spec, engine.running), name=name, **_placement(engine.running))

    def check(self, name: str) -> None:
        super().check(name)
        require_one_logit(name, self.spec)

    @property
    def score_identity(self) -> str | None:
        return None if self.engine.running.identity else super().score_identity

    def rewards(
        self, readings: Sequence[Reading | ScoreFailure], on_progress: Advance = silent
    ) -> list[float | ScoreFailure]:
        rows = _rows(readings, on_progress)
        return _in_place(self, readings, self.engine.logits(rows, on_progress))


class RowPrincipleScorer(PrincipleReader):
    """Asks a language model; the reward is log P(Yes) - log P(No) at the answer's position."""

    def __init__(self, engine: LanguageModel, renderer: Renderer, spec: RewardModelSpec, *, name: str) -> None:
        self.engine = engine
        super().__init__(renderer, spec_as_served(spec, engine.running), name=name, **_placement(engine.running))

    @property
    def score_identity(self) -> str | None:
        return None if self.engine.running.identity else super().score_identity

    def rewards(
        self, readings: Sequence[Reading | ScoreFailure], on_progress: Advance = silent
    ) -> list[float | ScoreFailure]:
        yes, no = self.questions.answers.yes, self.questions.answers.no
        rows = _rows(readings, on_progress)
        log_odds: list[float | Fault] = [
            logps if isinstance(logps, Fault) else logps[yes] - logps[no]
            for logps in self.engine.next_logps(rows, (yes, no), on_progress)
        ]
        return _in_place(self, readings, log_odds)


def require_one_logit(name: str, spec: RewardModelSpec) -> None:
    """Raises BadInputError for a scalar model that only the reference engine reads."""
    if not spec.is_one_logit:
        kind = "steps" if spec.stepwise is not None else "several ratings"
        raise BadInputError(
            f"{name} scores {kind}, which only the transformers engine reads: leave --engine out", field="engine"
        )


def _rows(readings: Sequence[Reading | ScoreFailure], on_progress: Advance) -> list[Row]:
    rows: list[Row] = [reading.conversation.ids for reading in readings if isinstance(reading, Reading)]
    if len(rows) < len(readings):
        on_progress(len(readings) - len(rows))
    return rows


def _in_place(
    scorer: TokenScorer, readings: Sequence[Reading | ScoreFailure], row_rewards: Sequence[float | Fault]
) -> list[float | ScoreFailure]:
    """Rewards of the rows in the order of the readings, with the failures of the others."""
    answers = iter(row_rewards)
    placed: list[float | ScoreFailure] = []
    for reading in readings:
        if isinstance(reading, ScoreFailure):
            placed.append(reading)
            continue
        answer = next(answers)
        placed.append(scorer.failure(answer.code, answer.message) if isinstance(answer, Fault) else answer)
    return placed


def spec_as_served(spec: RewardModelSpec, running: RunningModel) -> RewardModelSpec:
    """The spec with the server's weights in its version, where they are not the folder's own."""
    return replace(spec, version=f"{spec.version}@{running.identity}") if running.identity else spec


def _placement(running: RunningModel) -> dict[str, str]:
    return {"dtype": running.dtype, "device": running.device}
