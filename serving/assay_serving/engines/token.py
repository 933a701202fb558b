"""What the engines share that score token ids, wherever the model runs.

Covers: items to tokens, typed failures, the complete score; the checks and the conversations of scalar models, the
question of principle models. Leaves out: running the model: on this machine by transformers (`packed`), by vLLM or
behind a server (`assay_serving.vllm`).
"""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from assay.data.conversation import check_unicode
from assay.domain import response_text
from assay.errors import BackendError, BadInputError
from assay.models.chat.principle_renderer import QUESTION, PrincipleRenderer
from assay.models.chat.rendered_text import PolicyTemplate, RenderedTexts
from assay.models.chat.renderer import Encoded, Renderer
from assay.models.spec import Kind, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay.statistics.logistic import sigmoid
from assay_serving.scorer import ModelInfo, Rendered, ScoreItem


class Reading(NamedTuple):
    """A conversation and its positions, at least one, whose hidden states give the reward."""

    conversation: Encoded
    places: tuple[int, ...]


class TokenScorer(ABC):
    """Scores token ids. Safe to call from several threads, which take turns at the tokenizer."""

    def __init__(
        self,
        renderer: Renderer,
        spec: RewardModelSpec,
        *,
        name: str,
        dtype: str,
        device: str,
        attention: str = "",
    ) -> None:
        """Raises what `check` raises."""
        self.spec = spec
        self.renderer = renderer
        self.texts = RenderedTexts(renderer)
        self._lock = threading.Lock()
        self.check(name)
        self._info = ModelInfo(
            name=name,
            version=spec.version,
            kind=spec.kind,
            template_hash=spec.template_hash,
            max_length=renderer.max_length,
            calibrated=spec.calibration is not None,
            parity=spec.parity,
            dtype=dtype,
            device=device,
            attention=attention,
            calibration=spec.calibration.id if spec.calibration is not None else None,
            # A principle model's is fitted on P(Yes) of single responses, and says nothing of pairs.
            curve=spec.calibration.curve if spec.calibration is not None and spec.kind != "principle" else None,
            bradley_terry=spec.ranked and (spec.is_one_logit or (spec.adapter is not None and spec.stepwise is None)),
            question=spec.question,
            stepwise=spec.stepwise is not None,
            contamination=spec.contamination,
            trained_principles=spec.trained_principles,
        )

    @abstractmethod
    def check(self, name: str) -> None:
        """Raises BadInputError or BackendError where model, renderer and spec do not fit together or this engine."""

    @abstractmethod
    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        """The item's tokens, or why it cannot be scored."""

    @abstractmethod
    def rewards(
        self, readings: Sequence[Reading | ScoreFailure], on_progress: Advance = silent
    ) -> list[float | ScoreFailure]:
        """The reward of each reading, in order; a failure stays what it is."""

    def read(self, item: ScoreItem) -> Reading | ScoreFailure:
        """The item's tokens and the positions to read: the last token by default."""
        encoded = self.encode(item)
        return encoded if isinstance(encoded, ScoreFailure) else Reading(encoded, (len(encoded) - 1,))

    def expect(self, policies: Sequence[PolicyTemplate]) -> None:
        """Read rendered texts by these policies' templates too."""
        self.texts = RenderedTexts(self.renderer, policies)

    def encode_rendered(self, rendered: Rendered) -> Encoded | ScoreFailure:
        """The tokens of a conversation that the caller rendered, or why it cannot be scored; cut only on request."""
        try:
            if rendered.ids:
                encoded = self.texts.encode_ids(rendered.ids)
            else:
                special, complete = rendered.add_special_tokens, rendered.complete
                encoded = self.texts.encode(rendered.text, add_special_tokens=special, complete=complete)
        except BadInputError as error:
            return self.failure("bad_input", str(error))
        limit = self.renderer.max_length
        keep = limit if rendered.keep == -1 else rendered.keep
        if keep is not None and len(encoded) > keep:
            ids = encoded.ids[-keep:] if rendered.keep_end else encoded.ids[:keep]
            encoded = Encoded(ids if keep > 0 else (), 0, truncated=True)
        if not encoded.ids:
            return self.failure("bad_input", "the conversation has no tokens")
        if len(encoded) > limit:
            return self.failure("too_long", f"the text does not fit in {limit} tokens")
        return encoded

    def spoken(self, item: ScoreItem) -> ScoreItem | ScoreFailure:
        """The item with separate prompt and response, also where the caller rendered it; or why not."""
        return spoken(item, self.texts, self._info.name)

    def probability(self, reward: float) -> float | None:
        """The calibrated one; None where there is no calibration."""
        return self.spec.calibration.probability(reward) if self.spec.calibration is not None else None

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def score_identity(self) -> str | None:
        """See `Repeatable`. How outputs become a reward is in the spec, outside of the weights' version."""
        return f"{type(self).__name__} {self.spec.stepwise} {self.spec.ratings}{self.texts.identity}"

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Failure codes: bad_input, too_long, non_finite, backend, and those of the engine."""
        results: list[ScoreResult] = []
        with self._lock:
            readings = [self.read(item) for item in items]
        for item, reading, reward in zip(items, readings, self.rewards(readings, on_progress), strict=True):
            if isinstance(reward, ScoreFailure):
                results.append(reward)
            else:
                assert isinstance(reading, Reading)  # a failed one keeps its failure
                results.append(self.result(reading.conversation, reward, item.principle))
        return results

    def result(self, row: Encoded, reward: float, principle: str | None = None) -> ScoreResult:
        """The score of a conversation with this reward."""
        if not math.isfinite(reward):
            return self.failure("non_finite", f"the model's answer is not finite: {reward}")
        return Score(
            reward=reward,
            model=self._info.name,
            version=self._info.version,
            template_hash=self._info.template_hash,
            tokens=len(row),
            truncated=row.truncated,
            probability=self.probability(reward),
            principle=principle,
            calibration=self._info.calibration,
        )

    def failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self._info.name)


class ScalarReader(TokenScorer):
    """The part of an engine of models without principles that is the same wherever the model runs. `kind`: theirs."""

    kind: ClassVar[Kind] = "scalar"
    parted: ClassVar[bool] = True  #: conversations have a `response_start`

    def check(self, name: str) -> None:
        if self.spec.kind != self.kind:
            raise BadInputError(
                f"{name} is a reward model of kind {self.spec.kind}; this engine scores {self.kind} ones"
            )
        self.labels(name, self.spec)
        if self.spec.template_hash != self.renderer.template_hash:
            raise BackendError(
                f"{name} was trained with chat template {self.spec.template_hash}, "
                f"its tokenizer now gives {self.renderer.template_hash}: its scores would not be valid"
            )

    @classmethod
    def labels(cls, name: str, spec: RewardModelSpec) -> int:
        """Outputs of the head. Raises BadInputError for a model that is not this engine's."""
        return 1

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        """The item's tokens, or why it cannot be scored."""
        if item.principle is not None:
            return self.failure("bad_input", "this model takes no principle")
        if item.rendered is not None:
            return self.encode_rendered(item.rendered)
        try:
            for message in item.prompt:
                check_unicode(message.text, "prompt")
            check_unicode(response_text(item.response), "response")
            encoded = self.renderer.encode(item.prompt, item.response, parted=self.parted)
        except BadInputError as error:
            return self.failure("bad_input", str(error))
        if not encoded.ids:
            return self.failure("bad_input", "the conversation has no tokens")
        if encoded.response_cut:
            limit = self.renderer.max_length
            return self.failure("too_long", f"the response alone does not fit in {limit} tokens")
        return encoded


class PrincipleReader(TokenScorer):
    """The part of a principle model's engine that is the same wherever the model runs."""

    questions: PrincipleRenderer

    def check(self, name: str) -> None:
        spec = self.spec
        if spec.kind != "principle":
            raise BadInputError(f"{name} is a reward model of kind {spec.kind}; this engine asks principle models")
        self.questions = PrincipleRenderer(self.renderer, spec.question or QUESTION)
        if spec.template_hash != self.questions.template_hash:
            raise BackendError(
                f"{name} was trained with chat template and question {spec.template_hash}, its tokenizer now gives "
                f"{self.questions.template_hash}: its scores would not be valid"
            )
        answer_tokens = (self.questions.answers.yes, self.questions.answers.no)
        stated = (spec.yes_token, spec.no_token)
        if None not in stated and stated != answer_tokens:
            raise BackendError(
                f"{name} was trained to answer with tokens {stated}, its tokenizer now gives {answer_tokens}"
            )

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        """The question's tokens, or why the item cannot be scored."""
        if item.principle is None or not item.principle.strip():
            return self.failure("bad_input", "this model judges by a principle, and the item has none")
        spoken = self.spoken(item)
        if isinstance(spoken, ScoreFailure):
            return spoken
        try:
            for text, field in ((item.principle, "principle"), (response_text(spoken.response), "response")):
                check_unicode(text, field)
            for message in spoken.prompt:
                check_unicode(message.text, "prompt")
            encoded = self.questions.encode(spoken.prompt, spoken.response, item.principle)
        except BadInputError as error:
            return self.failure("bad_input", str(error))
        silent_cut = encoded.truncated and item.rendered is not None and item.rendered.keep is None
        if encoded.response_cut or silent_cut:
            limit = self.renderer.max_length
            return self.failure("too_long", f"the response and the question do not fit in {limit} tokens")
        return encoded

    def probability(self, reward: float) -> float | None:
        """The calibrated one, else P(Yes | Yes or No), the model's own."""
        calibrated = super().probability(reward)
        return sigmoid(reward) if calibrated is None else calibrated


def spoken(item: ScoreItem, texts: RenderedTexts | None, model: str) -> ScoreItem | ScoreFailure:
    """The item with separate prompt and response, parsed by `texts` where the caller rendered it; or why not."""
    if item.rendered is None:
        return item
    if item.rendered.ids or texts is None:
        return ScoreFailure("bad_input", f"{model} needs prompt and response separately: send messages", model)
    try:
        prompt, response = texts.conversation(item.rendered.text)
    except BadInputError as error:
        return ScoreFailure("bad_input", str(error), model)
    return replace(item, prompt=prompt, response=response, rendered=None)
