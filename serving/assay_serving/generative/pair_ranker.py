"""A published model that compares two responses in one pass, as a judge's writer: its answer is A or B, with log-odds.

Covers: opening one, pairs as the judge profile `pair-ranker` asks them. Leaves out: the pass
(`assay_serving.engines.pairs`), both orders (`pairwise`).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from assay.domain import Prompt
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_serving.engines.pairs import PairScorer
from assay_serving.engines.published import PublishedLoader, pair_form
from assay_serving.generative.answers import JudgeSample, Writer
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.generative.verdict import JudgeVerdict
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo

FORMAT = "pair-ranker"


class PairRanker:
    """See the module and `Writer`."""

    def __init__(self, scorer: PairScorer) -> None:
        self.scorer = scorer

    @property
    def info(self) -> ModelInfo:
        return replace(self.scorer.info, kind="generative")

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        read = self.scorer.read_pair(prompt)
        return not (isinstance(read, ScoreFailure) and read.code == "too_long")  # `answer` has other failures

    def answer(
        self,
        questions: Sequence[Prompt],
        form: JudgeFormat,
        judging: Judging,
        *,
        seed: int = 0,
        on_progress: Advance = silent,
    ) -> list[list[JudgeSample] | ScoreFailure]:
        """See `Writer.answer`. It has one answer, however many samples are asked for."""
        results: list[list[JudgeSample] | ScoreFailure] = []
        for compared in self.scorer.log_odds(questions, on_progress):
            if isinstance(compared, ScoreFailure):
                results.append(compared)
                continue
            odds, tokens = compared
            label = "A" if odds > 0 else "B" if odds < 0 else "tie"
            first = min(odds, 0.0) - math.log1p(math.exp(-abs(odds)))
            logp = {"A": first, "B": first - odds}
            results.append([JudgeSample(label, True, tokens, 0, JudgeVerdict(label, 0), logp)] * judging.samples)
        return results


def open_writer(config: ModelConfig, *, judging: Judging | None = None) -> tuple[Writer, RewardModelSpec]:
    """A model loaded here that judges, and its spec; a pair ranker is asked in its own form. Errors as of
    `LocalWriter.load` and `PublishedLoader.open`."""
    if pair_form(config) is None:
        return LocalWriter.load(config, judging=judging)
    scorer = PublishedLoader.open(config)
    assert isinstance(scorer, PairScorer)
    return PairRanker(scorer), replace(scorer.spec, kind="generative", judging=format_named(FORMAT).judging)
