"""Opening a reward model in a published form (`assay.models.adapters`): its scorer, its description.

Leaves out: the forms, the scorers (`adapted`, `pairs`).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError
from assay.models.adapters.adapter import ModelAdapter
from assay.models.adapters.backbone import load_parts, tokenizer_of
from assay.models.adapters.checkpoint import PublishedCheckpoint
from assay.models.adapters.kind import MODEL_ADAPTERS, adapter_of
from assay.models.chat.image_reader import ImageReader
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import context_length, stored_spec
from assay.models.readings import implicit_parts
from assay.models.spec import RewardModelSpec, weights_digest
from assay_serving.engines.adapted import (
    AdaptedPrincipleScorer,
    AdaptedScorer,
    AdaptedStepScorer,
    EncoderScorer,
    PublishedForm,
)
from assay_serving.engines.packed import for_scoring, require_parity
from assay_serving.engines.pairs import PairRmScorer, SteamShpScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import is_description, is_url, known_spec, media_of
from assay_serving.scorer import UNLIMITED

if TYPE_CHECKING:
    from assay_serving.engines.engine import ModelLoader

RELATIVE = ("states", "seq2seq")  #: bodies whose positions are relative: they read what their publishers let them


def pair_form(config: ModelConfig) -> ModelAdapter | None:
    """The published form of a model that reads two responses at once; None for any other model."""
    name = config.reference
    if is_url(name) or is_description(name) or implicit_parts(name) is not None or known_spec(name) is not None:
        return None
    matched = adapter_of(name, config.adapter)
    return matched[1] if matched is not None and matched[1].body in RELATIVE else None


class PublishedLoader:
    """The scorer `adapted` of the transformers engine."""

    @classmethod
    def load(cls, config: ModelConfig, loader: "ModelLoader | None" = None) -> AdaptedScorer | AdaptedPrincipleScorer:
        """Raises what `open` raises, and BadInputError for a model that rates no response by itself."""
        scorer = cls.open(config, loader)
        if scorer.form.adapter.compares:
            raise BadInputError(
                f"{config.reference} compares two responses and scores none by itself; "
                "it can judge pairs (assay eval-judge, eval --judge), not score"
            )
        return scorer

    @classmethod
    def open(cls, config: ModelConfig, loader: "ModelLoader | None" = None) -> AdaptedScorer | AdaptedPrincipleScorer:
        """A scorer of the form's own class. `loader`: says which workspace stored images are in.

        Raises what `assay.models.adapters.kind.adapter_of` and `load_parts` raise, and for failed parity checks."""
        spec = stored_spec(config.reference)
        form_name = config.adapter or (spec.adapter if spec is not None else None)
        if config.adapter is None and form_name is not None and form_name not in MODEL_ADAPTERS.names():
            raise BadInputError(
                f"{config.reference} asks for the code {form_name}: allow it by --adapter", field="adapter"
            )
        matched = adapter_of(config.reference, form_name)
        if matched is None:
            raise BadInputError(f"{config.reference} is of no published form that is known here", field="adapter")
        name, adapter, checkpoint = matched
        if adapter.question is not None:
            return AdaptedPrincipleScorer.of_form(config, PublishedForm(name, adapter))
        tokenizer, device = tokenizer_of(checkpoint), pick_device(config.device)
        chat = ChatOptions(template=adapter.template, system=adapter.system)
        images = None
        if checkpoint.config.get("vision_config"):
            images = ImageReader.load(config.reference, tokenizer, media_of(loader))
        default_spec = spec is None
        if spec is None:
            template = Renderer(tokenizer, max_length=UNLIMITED, chat=chat, images=images).template_hash
            spec = _spec(config, name, adapter, checkpoint, template)
        require_parity(config, spec)
        dtype = pick_dtype(device, config.dtype)
        model, head = load_parts(checkpoint, adapter, tokenizer, dtype=dtype, device=device)
        if default_spec and model.config.num_labels > 1:  # its labels are classes or ratings
            spec = replace(spec, ranked=False)
        closed = adapter.body == "encoder" and bool(tokenizer.chat_template)  # by two tokens, see `EncoderScorer`
        length = config.length(spec.trained_length, _context(model.config)) - (2 * closed or adapter.append is not None)
        renderer = Renderer(tokenizer, max_length=length, chat=chat, images=images)
        last = None if adapter.append is None else _reward_token(checkpoint, adapter.append)
        gate = tuple(tokenizer(adapter.gate, add_special_tokens=False)["input_ids"]) if adapter.gate else ()
        below = "" if checkpoint.base is None else weights_digest(checkpoint.base.folder)
        form = PublishedForm(name, adapter, head, gate, last, below)
        kind: type[AdaptedScorer] = AdaptedStepScorer if adapter.steps is not None else AdaptedScorer
        if adapter.body == "encoder":
            kind = EncoderScorer
        elif adapter.body in RELATIVE:
            kind = PairRmScorer if adapter.compares else SteamShpScorer
        budget = config.token_budget
        return kind(for_scoring(model), renderer, spec, form=form, name=config.name, token_budget=budget)


def _spec(
    config: ModelConfig, name: str, adapter: ModelAdapter, checkpoint: PublishedCheckpoint, template_hash: str
) -> RewardModelSpec:
    limit = min(_context(checkpoint.config), adapter.max_length or UNLIMITED)
    if adapter.body in RELATIVE:
        limit = adapter.max_length or UNLIMITED
    fetched = checkpoint.folder.parent.name == "snapshots"  # of a hub: the folder's name is the commit
    version = checkpoint.folder.name if fetched else weights_digest(checkpoint.folder)
    return RewardModelSpec(
        kind="scalar",
        base=config.reference,
        template_hash=template_hash,
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
