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
from assay.models.adapters.backbone import load_parts, tokenizer_of
from assay.models.adapters.checkpoint import PublishedCheckpoint
from assay.models.adapters.heads import RewardHead
from assay.models.adapters.kind import MODEL_ADAPTERS, adapter_of
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Encoded, Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import context_length, stored_spec
from assay.models.spec import RewardModelSpec, weights_digest
from assay.score import ScoreFailure, ScorePart
from assay_serving.engines.packed import for_scoring, require_parity
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.process_reward import StepScorer
from assay_serving.engines.token import Reading, ScalarReader
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import UNLIMITED, ScoreItem

if TYPE_CHECKING:
    import torch

    from assay_serving.engines.engine import ModelLoader


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

    def __init__(self, *arguments: Any, form: PublishedForm, **options: Any) -> None:
        """`arguments`, `options`: of `PackedScorer`."""
        self.form = form
        super().__init__(*arguments, **options)

    @classmethod
    def load(cls, config: ModelConfig, loader: "ModelLoader | None" = None, **options: Any) -> Any:
        """A scorer of the form's own class.

        Raises what `assay.models.adapters.kind.adapter_of` and `load_parts` raise, and for failed parity checks."""
        spec = stored_spec(config.reference)
        named = config.adapter or (spec.adapter if spec is not None else None)
        if config.adapter is None and named is not None and named not in MODEL_ADAPTERS.names():
            raise BadInputError(f"{config.reference} asks for the code {named}: allow it by --adapter", field="adapter")
        matched = adapter_of(config.reference, named)
        if matched is None:
            raise BadInputError(f"{config.reference} is of no published form that is known here", field="adapter")
        name, adapter, checkpoint = matched
        if adapter.question is not None:
            return AdaptedPrincipleScorer.of_form(config, PublishedForm(name, adapter))
        tokenizer, device = tokenizer_of(checkpoint), pick_device(config.device)
        chat = ChatOptions(template=adapter.template, system=adapter.system)
        default_spec = spec is None
        if spec is None:
            spec = _spec(config, name, adapter, checkpoint, tokenizer, chat)
        require_parity(config, spec)
        dtype = pick_dtype(device, config.dtype)
        model, head = load_parts(checkpoint, adapter, tokenizer, dtype=dtype, device=device)
        if default_spec and model.config.num_labels > 1:  # its labels are classes or ratings
            spec = replace(spec, ranked=False)
        closed = adapter.body == "encoder" and bool(tokenizer.chat_template)  # by two tokens, see `EncoderScorer`
        length = config.length(spec.trained_length, _context(model.config)) - (2 * closed or adapter.append is not None)
        renderer = Renderer(tokenizer, max_length=length, chat=chat)
        last = None if adapter.append is None else _reward_token(checkpoint, adapter.append)
        gate = tuple(tokenizer(adapter.gate, add_special_tokens=False)["input_ids"]) if adapter.gate else ()
        below = "" if checkpoint.base is None else weights_digest(checkpoint.base.folder)
        form = PublishedForm(name, adapter, head, gate, last, below)
        kind = AdaptedStepScorer if adapter.steps is not None else _SCORERS.get(adapter.body, AdaptedScorer)
        budget = config.token_budget
        return kind(for_scoring(model), renderer, spec, form=form, name=config.name, token_budget=budget)

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
            logits = self.model(**{name: value.to(device) for name, value in options.items()}).logits.float().cpu()
        self.last_computed += ids.numel()
        self.last_padding += int((mask == 0).sum())
        return [row[None] for row in logits]


_SCORERS: dict[str, type[AdaptedScorer]] = {"encoder": EncoderScorer}


def _spec(
    config: ModelConfig,
    name: str,
    adapter: ModelAdapter,
    checkpoint: PublishedCheckpoint,
    tokenizer: Any,
    chat: ChatOptions,
) -> RewardModelSpec:
    limit = min(_context(checkpoint.config), adapter.max_length or UNLIMITED)
    fetched = checkpoint.folder.parent.name == "snapshots"  # of a hub: the folder's name is the commit
    version = checkpoint.folder.name if fetched else weights_digest(checkpoint.folder)
    return RewardModelSpec(
        kind="scalar",
        base=config.reference,
        template_hash=Renderer(tokenizer, max_length=UNLIMITED, chat=chat).template_hash,
        trained_length=limit,
        version=version,
        stepwise=adapter.stepwise,
        ranked=adapter.ranked,
        adapter=name,
    )


def _context(config: Any) -> int:
    """Tokens that a model of this configuration, or of this config.json, reads at most."""
    if isinstance(config, dict):
        kind, limit = config.get("model_type"), int(config.get("max_position_embeddings") or 4096)
    else:
        kind, limit = config.model_type, context_length(config)
    return limit - 2 if kind in ("roberta", "xlm-roberta") else limit  # which count positions from 2


def _reward_token(checkpoint: PublishedCheckpoint, key: str) -> int:
    token = checkpoint.config.get(key)
    if not isinstance(token, int):
        raise BadInputError(f"{checkpoint.name}: config.json says no {key}, the token that the reward is read at")
    return token


def _last_place(ids: Sequence[int], run: Sequence[int]) -> int | None:
    """Index where the last `run` begins."""
    length = len(run)
    return next((n for n in range(len(ids) - length, -1, -1) if tuple(ids[n : n + length]) == tuple(run)), None)
