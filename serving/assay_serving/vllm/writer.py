"""A language model in vLLM, in this process or behind a server, as a judge's writer.

Leaves out: questions, verdicts and log-probs of the labels (`token_writer`, shared with the reference writer), the
engines.
"""

from collections.abc import Sequence

from assay.models.chat.renderer import Renderer
from assay.runs.progress_bar import silent
from assay.score import ScoreFailure
from assay_serving.generative.generation import Sampled, SamplingParams
from assay_serving.generative.token_writer import TokenWriter
from assay_serving.scorer import UNLIMITED, ModelInfo
from assay_serving.vllm.rows import Fault, TextModel

#: The engine plans its own batches: all questions of a call are handed over at once.
AT_ONCE = 1 << 24


class RowWriter(TokenWriter):
    """Answers by an engine that takes rows of token ids. `ends`: token ids that end an answer."""

    def __init__(self, engine: TextModel, renderer: Renderer, info: ModelInfo, *, ends: Sequence[int]) -> None:
        super().__init__(renderer, info, context=engine.running.max_length or UNLIMITED, token_budget=AT_ONCE)
        self.engine = engine
        self._ends = list(ends)

    def generate(
        self, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams, *, samples: int, seed: int
    ) -> list[list[Sampled] | ScoreFailure]:
        generated = self.engine.generate(prompts, sampling, samples=samples, ends=self._ends, seed=seed)
        return [self._failed(answer) if isinstance(answer, Fault) else answer for answer in generated]

    def next_logps(self, rows: Sequence[list[int]], tokens: Sequence[int]) -> list[dict[int, float] | ScoreFailure]:
        log_probs = self.engine.next_logps(rows, tokens, silent)
        return [self._failed(answer) if isinstance(answer, Fault) else answer for answer in log_probs]

    def _failed(self, fault: Fault) -> ScoreFailure:
        return self._failure(fault.code, fault.message)
