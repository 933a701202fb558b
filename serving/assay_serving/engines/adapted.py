"""Scoring with reward models in published forms that no stock class reads (`assay.models.adapters`).

Covers: conversations in the publisher's form, the positions that are read, named parts, steps, encoders that take
question and answer as two texts; packed and with shared prefixes where the network allows it. Leaves out: the forms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from assay.domain import Prompt, response_text
from assay.errors import BadInputError
from assay.models.adapters.adapter import ModelAdapter
from assay.models.adapters.heads import RewardHead
from assay.models.chat.renderer import Encoded
from assay.score import ScoreFailure, ScorePart
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.process_reward import StepScorer
from assay_serving.engines.token import Reading, ScalarReader
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class PublishedForm:
    """The form that a loaded model is read by: its name, its declaration, its head, the tokens of its gate, the token
    that is put at the end."""

    name: str
    adapter: ModelAdapter
    head: RewardHead | None = None
    gate: tuple[int, ...] = ()
    last: int | None = None
    base: str = ""  #: version of a PEFT adapter's base


class AdaptedScorer(TransformersScorer):
    """Scores by a form's head."""

    parted = True

    def __init__(self, *arguments: Any, form: PublishedForm, **options: Any) -> None:
        """`arguments`, `options`: of `PackedScorer`."""
        self.form = form
        super().__init__(*arguments, **options)

    def check(self, name: str) -> None:
        ScalarReader.check(self, name)

    @property
    def score_identity(self) -> str | None:
        return f"{super().score_identity} {self.form.name} {self.form.base}"

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        encoded = super().encode(item)
        last = self.form.last
        if isinstance(encoded, ScoreFailure) or last is None or encoded.ids[-1] == last:
            return encoded
        return replace(encoded, ids=(*encoded.ids, last))

    def read(self, item: ScoreItem) -> Reading | ScoreFailure:
        encoded = self.encode(item)
        if isinstance(encoded, ScoreFailure):
            return encoded
        if not self.form.gate:
            return Reading(encoded, (len(encoded) - 1,))
        position = _last_place(encoded.ids, self.form.gate)
        if position is None:
            text = self.form.adapter.gate
            return self.failure("bad_input", f"the conversation has no {text!r}, where this model's gate is read")
        return Reading(encoded, (position, len(encoded) - 1))

    def head(self, states: "torch.Tensor") -> "torch.Tensor":
        assert self.form.head is not None  # only an encoder has none
        return self.form.head.outputs(self.model, states)

    def reward(self, outputs: "torch.Tensor") -> float:
        return self.form.head.reward(outputs) if self.form.head is not None else float(outputs[-1, 0])

    def parts(self, outputs: "torch.Tensor") -> tuple[ScorePart, ...]:
        """Named ratings of one response from its outputs."""
        return self.form.head.parts(outputs) if self.form.head is not None else ()


class AdaptedPrincipleScorer(PrincipleScorer):
    """Asks a language model the form's question about the principle."""

    form: PublishedForm

    @classmethod
    def of_form(cls, config: ModelConfig, form: PublishedForm) -> Self:
        length = config.max_length or form.adapter.max_length
        scorer = super().load(replace(config, question=form.adapter.question, max_length=length))
        scorer.form = form
        return scorer


class AdaptedStepScorer(AdaptedScorer, StepScorer):
    """Scores responses by their steps, shown as the publisher shows them."""

    def read(self, item: ScoreItem) -> Reading | ScoreFailure:
        spoken = self.spoken(item)
        if isinstance(spoken, ScoreFailure):
            return spoken
        encoded = self.encode(spoken)  # the checks of every engine
        if isinstance(encoded, ScoreFailure):
            return encoded
        if not isinstance(spoken.response, str):
            return self.failure("bad_input", "steps are parts of one text; this response is more than text")
        return self._checked(spoken.prompt, self.steps_of(spoken))

    def reward(self, outputs: "torch.Tensor") -> float:
        return StepScorer.reward(self, outputs)

    def parts(self, outputs: "torch.Tensor") -> tuple[ScorePart, ...]:
        return StepScorer.parts(self, outputs)

    def _checked(self, prompt: Prompt, steps: Sequence[str]) -> Reading | ScoreFailure:
        assert self.form.adapter.steps is not None  # checked when it was loaded
        try:
            places = self.form.adapter.steps.places(self.renderer, prompt, steps)
        except BadInputError as error:
            return self.failure("bad_input", str(error))
        return Reading(Encoded(places.ids, 0, places.truncated), places.places)


class EncoderScorer(AdaptedScorer):
    """Scores by an encoder's own classifier: question and answer as two texts where it has no chat template."""

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        if self.renderer.tokenizer.chat_template:
            return self._closed(super().encode(item))
        spoken = self.spoken(item)
        if isinstance(spoken, ScoreFailure):
            return spoken
        checked = super().encode(spoken)
        if isinstance(checked, ScoreFailure) and checked.code != "too_long":
            return checked
        tokenizer = self.renderer.tokenizer
        question = "\n".join(message.text for message in spoken.prompt)
        pair = tokenizer(question, response_text(spoken.response), truncation=False, verbose=False)
        texts, ids = pair.sequence_ids(0), list(pair["input_ids"])
        excess = len(ids) - self.renderer.max_length
        question_tokens = [n for n, text in enumerate(texts) if text == 0]
        if excess >= max(1, len(question_tokens)):
            limit = self.renderer.max_length
            return self.failure("too_long", f"the response alone does not fit in {limit} tokens")
        if excess > 0 and item.rendered is not None and item.rendered.keep is None:
            return self.failure("too_long", f"the text does not fit in {self.renderer.max_length} tokens")
        dropped = set(question_tokens[: max(0, excess)])
        remaining = [n for n in range(len(ids)) if n not in dropped]
        start = next((i for i, n in enumerate(remaining) if texts[n] == 1), len(remaining))
        return Encoded(tuple(ids[n] for n in remaining), start, truncated=bool(dropped))

    def other_ways(self) -> Iterator[tuple[str, Self]]:
        """None: an encoder reads the beginning of a row, so that padding has one side."""
        yield from ()

    def reward(self, outputs: "torch.Tensor") -> float:
        """Its one output, or of two labels the log-odds of the second, or the mean of more."""
        values = outputs[-1].tolist()
        return float(values[1] - values[0]) if len(values) == 2 else sum(values) / len(values)

    def parts(self, outputs: "torch.Tensor") -> tuple[ScorePart, ...]:
        values = outputs[-1].tolist()
        if len(values) <= 2:
            return ()
        names = self.model.config.id2label or {}
        return tuple(
            ScorePart(str(names.get(n, f"LABEL_{n}")), reward=v, value=v, weight=1 / len(values))
            for n, v in enumerate(values)
        )

    def _closed(self, encoded: Encoded | ScoreFailure) -> Encoded | ScoreFailure:
        """Between the tokenizer's own first and last token, which a template does not write."""
        if isinstance(encoded, ScoreFailure):
            return encoded
        tokenizer = self.renderer.tokenizer
        begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        ids = encoded.ids if begin is None or encoded.ids[0] == begin else (begin, *encoded.ids)
        return replace(encoded, ids=ids if end is None or ids[-1] == end else (*ids, end))

    def _forward(self, batch: list[list[int]], rows: Sequence[Reading]) -> "list[torch.Tensor]":
        import torch

        readings = [rows[i] for group in batch for i in group]
        width = max(len(reading.conversation) for reading in readings)
        ids, mask, types = (torch.zeros(len(readings), width, dtype=torch.long) for _ in range(3))
        for number, (conversation, _) in enumerate(readings):
            length = len(conversation)
            ids[number, :length], mask[number, :length] = torch.tensor(conversation.ids), 1
            types[number, conversation.response_start : length] = 1
        ids[mask == 0] = self.renderer.tokenizer.pad_token_id or 0
        options: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self.renderer.tokenizer.model_input_names:
            options["token_type_ids"] = types
        device = self.model.device
        with torch.inference_mode():
            inputs = {name: value.to(device) for name, value in options.items()}
            outputs = self._outputs_of(inputs, readings).float().cpu()
        self.last_computed += ids.numel()
        self.last_padding += int((mask == 0).sum())
        return [row[None] for row in outputs]

    def _outputs_of(self, inputs: "dict[str, torch.Tensor]", readings: Sequence[Reading]) -> "torch.Tensor":
        """Outputs [B, K] of the padded rows of these readings."""
        logits: torch.Tensor = self.model(**inputs).logits
        return logits


def _last_place(ids: Sequence[int], run: Sequence[int]) -> int | None:
    """Index where the last `run` begins."""
    length = len(run)
    return next((n for n in range(len(ids) - length, -1, -1) if tuple(ids[n : n + length]) == tuple(run)), None)
