"""R3, a reward without preferences: how relevant a response is to what was asked, regularised by length and repetition.

Source: "Preference-free Alignment Learning with Regularized Relevance Reward", arXiv 2402.03469, and its reward code:
r = relevance x tokens / 100 x distinct trigrams / trigrams, relevance being the product of two text embeddings, of the
user's turns and the response; where the item has a reference answer (its label), the reference's with the response and
the most that length can give in place of tokens / 100. Departures: embeddings of length 1 (theirs, Contriever's, are
not), so the relevance to a reference is not divided by 3.5; tokens / 100 is capped at 5.12, the longest response there.

    assay serve minilm --engine assay_pipelines.embedding.relevance:RelevanceScorer

Covers: the engine over any encoder. Leaves out: deciding which questions have one right answer. An encoder reads the
beginning of a long text only (MiniLM: 256 tokens), which the score's `truncated` does not tell.
"""

import re
from collections.abc import Sequence
from typing import Any, Self

from assay.conversation.message import images_of
from assay.domain import response_text
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScorePart, ScoreResult
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, ScoreItem

LONGEST = 5.12
_TOKEN = re.compile(r"\w+|[^\w\s]+")


def length_and_repetition(text: str) -> tuple[float, float]:
    """Tokens / 100, capped, and distinct trigrams / trigrams (1 where there is none)."""
    tokens = _TOKEN.findall(text)
    trigrams = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return min(len(tokens) / 100, LONGEST), len(set(trigrams)) / len(trigrams) if trigrams else 1.0


class RelevanceScorer:
    """An engine and its scorer; the score's parts are the three factors."""

    def __init__(self, encoder: Encoder, name: str) -> None:
        self.encoder = encoder
        self.info = ModelInfo(name, encoder.name)

    @classmethod
    def load(cls, config: ModelConfig, loader: Any = None) -> Self:
        """`config.reference`: an encoder's name or folder. Raises as `open_encoder`."""
        return cls(open_encoder(config.reference, config.device), config.name)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. An item whose response or question is empty is a failure, and one with images."""
        answers = [response_text(item.response).strip() for item in items]
        asked_for = [item.label or " ".join(m.text for m in item.prompt if m.role == "user").strip() for item in items]
        vectors = self.encoder.encode([*asked_for, *answers])
        relevances = (vectors[: len(items)] * vectors[len(items) :]).sum(axis=1).tolist()
        on_progress(len(items))
        return [
            ScoreFailure("bad_input", reason, self.info.name)
            if (reason := _fault(item, question, answer)) is not None
            else self._score(relevance, answer, bool(item.label))
            for item, question, answer, relevance in zip(items, asked_for, answers, relevances, strict=True)
        ]

    def _score(self, relevance: float, answer: str, constrained: bool) -> Score:
        length, repetition = length_and_repetition(answer)
        factors = {"relevance": relevance, "length": LONGEST if constrained else length, "repetition": repetition}
        parts = tuple(ScorePart(name, factor, factor) for name, factor in factors.items())
        reward = factors["relevance"] * factors["length"] * factors["repetition"]
        return Score(reward, self.info.name, self.info.version, "", len(_TOKEN.findall(answer)), False, parts=parts)


def _fault(item: ScoreItem, question: str, answer: str) -> str | None:
    if images_of(item.prompt) or images_of(item.response):
        return "an encoder of texts has no place for images"
    return None if question and answer else "no question or no response to compare"
