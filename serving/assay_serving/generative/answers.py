"""One sampled answer of a judge, and the protocol of models that write answers.

Leaves out: the models (`local`, `remote`, `assay_serving.vllm.writer`), votes (`voting`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.domain import Prompt
from assay.models.spec import Judging
from assay.runs.progress_bar import Advance
from assay.score import ScoreFailure
from assay_serving.generative.templates import JudgeFormat
from assay_serving.generative.verdict import JudgeVerdict, ParseFailure
from assay_serving.scorer import ModelInfo


@dataclass(frozen=True, slots=True)
class JudgeSample:
    """One answer of a judge. `logp`: log-prob of each label at the judgement token, where the verdict could be read and
    the model gives them (a bound for a label that an endpoint did not list); None else."""

    text: str
    ended: bool
    tokens_in: int
    tokens_out: int
    verdict: JudgeVerdict | ParseFailure
    logp: Mapping[str, float] | None = None

    @property
    def label(self) -> str | None:
        return self.verdict.label if isinstance(self.verdict, JudgeVerdict) else None

    @property
    def value(self) -> float | None:
        """The number of a verdict on one response that states one (see `JudgeVerdict`)."""
        return self.verdict.value if isinstance(self.verdict, JudgeVerdict) else None

    @property
    def strength(self) -> int | None:
        return self.verdict.strength if isinstance(self.verdict, JudgeVerdict) else None

    @property
    def fault(self) -> str | None:
        return self.verdict.fault if isinstance(self.verdict, ParseFailure) else None

    @property
    def reasoning(self) -> str:
        """The text before the verdict; all of it where there is none."""
        return self.text[: self.verdict.line_start].rstrip() if isinstance(self.verdict, JudgeVerdict) else self.text

    def log_odds(self, first: str, second: str) -> float | None:
        """logp(first) - logp(second) at the judgement token; None without a verdict."""
        return None if self.logp is None else self.logp[first] - self.logp[second]


class Writer(Protocol):
    """A model that answers judge questions. A question that it cannot answer becomes one ScoreFailure."""

    @property
    def info(self) -> ModelInfo: ...

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        """Whether the question and the longest answer fit the model."""
        ...

    def answer(
        self, questions: Sequence[Prompt], form: JudgeFormat, judging: Judging, *, seed: int, on_progress: Advance
    ) -> list[list[JudgeSample] | ScoreFailure]:
        """`judging.samples` answers of each question, in order. An answer depends on its question, the seed and its
        number only, not on the rest of the batch. `on_progress` counts questions."""
        ...
