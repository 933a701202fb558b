"""The log-odds at the judgement token of a question and a complete answer, as a scorer.

Covers: what parity checks of generative models compare. The texts are fixed, so equal models give equal numbers, while
generating again could diverge at a near tie. Leaves out: generating (`engine`, `pairwise`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.generative.local import LocalWriter, check_spec, info_of
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.generative.voting import expected_rating
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import known_spec
from assay_serving.scorer import ModelInfo, ScoreItem


class VerdictReader:
    """A `Scorer` of (judge's question, judge's complete answer): log-odds of the two labels, or the expected rating."""

    def __init__(self, model: Any, renderer: Renderer, spec: RewardModelSpec, *, name: str) -> None:
        if spec.judging is None:
            raise BadInputError(f"{name} is a reward model of kind {spec.kind}, not a generative one")
        check_spec(name, spec, renderer)
        self.form = format_named(spec.judging.format)
        self.spec = spec
        self.writer = LocalWriter(model, renderer, info_of(name, spec, model))

    @classmethod
    def load(cls, config: ModelConfig) -> "VerdictReader":
        """Errors as of `LocalWriter.load`. Tools are not opened: complete answers call none."""
        stored = known_spec(config.reference)
        judging = replace(stored.judging, tools=()) if stored is not None and stored.judging is not None else None
        writer, spec = LocalWriter.load(config, judging=judging)
        return cls(writer.model, writer.renderer, replace(spec, parity="unchecked"), name=writer.info.name)

    @property
    def info(self) -> ModelInfo:
        return self.writer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Failure codes: unparsable, and bad_input."""
        try:
            logps = self.writer.label_logps([item.prompt for item in items], list(map(_answer, items)), self.form)
        except BadInputError as error:
            if len(items) > 1:  # one item must not cost the others their scores
                return [result for item in items for result in self.score([item], on_progress)]
            on_progress(1)
            return [ScoreFailure("bad_input", str(error), self.info.name)]
        on_progress(len(items))
        return [self._result(logp) for logp in logps]

    def _result(self, logp: dict[str, float] | None) -> ScoreResult:
        if logp is None:
            return ScoreFailure("unparsable", "the answer has no verdict", self.info.name)
        first, second = self.form.labels[0], self.form.labels[-1]
        reward = expected_rating(logp) if len(logp) > 2 else logp[first] - logp[second]
        return Score(reward, self.info.name, self.info.version, self.info.template_hash, tokens=0, truncated=False)


def _answer(item: ScoreItem) -> str:
    if not isinstance(item.response, str):
        raise BadInputError("a judge's answer is text, without tool calls", field="response")
    return item.response


def reading_items(items: Sequence[ScoreItem], form: JudgeFormat) -> list[ScoreItem]:
    """Items for a reader from plain responses: a question about each (a pair: beside the next one), with the same
    answer for all."""
    answer = f"It is as it is.\n{form.final_line(form.labels[0])}"
    questions = []
    for index, item in enumerate(items):
        responses = [items[(index + step) % len(items)].response for step in range(form.responses)]
        questions.append(ScoreItem(form.ask(item.prompt, responses, item.principle), answer))
    return questions
