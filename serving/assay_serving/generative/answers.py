"""One sampled answer of a judge, and the protocol of models that write answers.

Leaves out: the models (`local`, `remote`, `assay_serving.vllm.writer`), votes (`voting`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from assay.domain import Prompt
from assay.models.spec import Judging
from assay.runs.progress_bar import Advance
from assay.score import ScoreFailure
from assay_serving.generative.templates import JudgeFormat
from assay_serving.generative.verdict import JudgeVerdict, ParseFailure
from assay_serving.scorer import ModelInfo
from assay_serving.tools.tool import ToolTurn, transcript


@dataclass(frozen=True, slots=True)
class JudgeSample:
    """One answer of a judge. `logp`: log-prob of each label at the judgement token, where the verdict could be read and
    the model gives them (a bound for a label that an endpoint did not list); None else. `turns`: those that called
    tools; `text` begins with them and what they got, `tokens_out` are the model's own."""

    text: str
    ended: bool
    tokens_in: int
    tokens_out: int
    verdict: JudgeVerdict | ParseFailure
    logp: Mapping[str, float] | None = None
    turns: tuple[ToolTurn, ...] = ()

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


def with_turns(answer: JudgeSample, turns: Sequence[ToolTurn], judging: Judging, *, tokens_out: int) -> JudgeSample:
    """The answer, read from the last turn alone, after the turns that called tools; `tokens_out` are theirs."""
    before, verdict, logp = transcript(turns), answer.verdict, answer.logp
    if isinstance(verdict, JudgeVerdict):
        verdict = replace(verdict, line_start=verdict.line_start + len(before))
    if judging.tool_errors == "fail" and any(turn.errors for turn in turns):
        verdict, logp = ParseFailure("tool_error"), None
    text, spent = before + answer.text, answer.tokens_out + tokens_out
    return replace(answer, text=text, verdict=verdict, logp=logp, turns=tuple(turns), tokens_out=spent)


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
