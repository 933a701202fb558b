"""The stock network of a published checkpoint, with the checkpoint's weights under its own names, in memory.

Covers: renaming and converting tensors, the refusal of weights that would be random or unused, PEFT adapters merged
into their base, the tokenizer. Leaves out: heads, what is read.
"""

import re
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from assay.errors import BackendError, BadInputError, NotFoundError
from assay.models import vision
from assay.models.adapters.adapter import HeadWeights, ModelAdapter
from assay.models.adapters.checkpoint import PublishedCheckpoint
from assay.models.adapters.heads import RewardHead
from assay.models.loading import check_vocabulary, fit, load_tokenizer
from assay.models.quiet import quiet_transformers

if TYPE_CHECKING:
    import torch

_SCORE = "score.weight"
#: Body -> the classes of transformers, by configuration; stock classifiers else.
_CLASSES = {
    "language": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "states": "MODEL_MAPPING",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
}
#: Of a configuration: what says which code reads it.
_OF_CODE = ("auto_map", "architectures", "model_type", "attn_implementation", "_attn_implementation")


def tokenizer_of(checkpoint: PublishedCheckpoint) -> Any:
    """Its tokenizer, with a pad token of its own. One that is code of its own is read from its tokenizer.json."""
    try:
        return load_tokenizer(str(checkpoint.folder))
    except (BadInputError, BackendError, NotFoundError):
        if checkpoint.base is not None:
            return tokenizer_of(checkpoint.base)
        if not (checkpoint.folder / "tokenizer.json").is_file():
            raise
    from transformers import PreTrainedTokenizerFast

    from assay.models.loading import OWN_PAD

    with quiet_transformers():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(checkpoint.folder))
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.add_special_tokens({"pad_token": OWN_PAD})
    return tokenizer


def load_parts(
    checkpoint: PublishedCheckpoint,
    adapter: ModelAdapter,
    tokenizer: Any,
    *,
    dtype: "torch.dtype",
    device: "torch.device",
) -> tuple[Any, RewardHead | None]:
    """The network in eval mode and the head (None: an encoder's own), on the device; the head in float32.

    Raises BadInputError for weights that are missing or unknown, and for a tokenizer of another vocabulary.
    """
    if checkpoint.base is not None:
        return _merged(checkpoint, adapter, tokenizer, dtype=dtype, device=device)
    weights = HeadWeights(checkpoint, tokenizer)
    head = adapter.head(weights).eval().requires_grad_(False).to(device) if adapter.head is not None else None
    state: dict[str, Any] = {}
    for name in checkpoint.shapes:
        if name not in weights.used and not re.fullmatch(adapter.needless, name):
            state |= _converted(name, checkpoint, adapter)
    if adapter.body == "language":
        state |= {n: checkpoint.tensor(n) for n in ("lm_head.weight",) if n in checkpoint.shapes}
    labels = 1
    if adapter.body == "encoder":
        from assay.models.adapters.classifiers import labels_of

        labels = labels_of(checkpoint.config)
    model = stock_model(checkpoint, adapter, state, dtype=dtype, labels=labels)
    check_vocabulary(checkpoint.name, tokenizer, model)
    model = fit(model, tokenizer, device)
    if head is not None:
        size = int(model.config.get_text_config().hidden_size) * (2 if adapter.compares else 1)
        _check_head(checkpoint.name, head, model, size)
    return model, head


def stock_model(
    checkpoint: PublishedCheckpoint, adapter: ModelAdapter, state: dict[str, Any], *, dtype: "torch.dtype", labels: int
) -> Any:
    """The class of transformers with the tensors of `state`, all of which it takes and none of which it lacks."""
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = adapter.backbone or str(checkpoint.config.get("model_type"))
    if kind not in CONFIG_MAPPING:
        raise BadInputError(f"{checkpoint.name} is built on {kind!r}, which this transformers does not have")
    described = {k: v for k, v in checkpoint.config.items() if k not in _OF_CODE}
    if adapter.body != "encoder":
        described = {k: v for k, v in described.items() if k not in ("id2label", "label2id", "num_labels")}
        described["num_labels"] = labels
    try:
        config = CONFIG_MAPPING[kind].from_dict(described)
    except (StrictDataclassError, ValueError, TypeError) as error:
        raise BadInputError(f"{checkpoint.name} has a wrong config.json: {_line(error)}") from error
    classes: Any = getattr(modeling_auto, _CLASSES.get(adapter.body, "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING"))
    if adapter.body == "classifier" and vision.reads_images(config):
        stock: Any = vision.classifier_for(config)
    elif type(config) in classes:
        stock = classes[type(config)]
    else:
        raise BadInputError(f"{checkpoint.name} is built on {kind!r}, which has no such stock class in transformers")
    if adapter.body == "classifier":  # a place for a head, which is not read
        state[_SCORE] = torch.zeros(labels, int(config.get_text_config().hidden_size), dtype=dtype)
    try:
        with quiet_transformers():
            model, info = stock.from_pretrained(
                None, config=config, state_dict=state, dtype=dtype, output_loading_info=True
            )
    except (RuntimeError, ValueError, OSError) as error:
        raise BadInputError(f"{checkpoint.name} does not fit its configuration: {_line(error)}") from error
    if lacking := sorted(info["missing_keys"]):
        raise BadInputError(f"{checkpoint.name} lacks weights, which would be random: {', '.join(lacking[:3])}")
    if unknown := sorted(info["unexpected_keys"]):
        raise BadInputError(f"{checkpoint.name} has weights that nothing here reads: {', '.join(unknown[:3])}")
    if info["mismatched_keys"]:
        raise BadInputError(f"{checkpoint.name} does not fit its configuration: {sorted(info['mismatched_keys'])[0]}")
    return model


def _converted(name: str, checkpoint: PublishedCheckpoint, adapter: ModelAdapter) -> dict[str, Any]:
    tensor = checkpoint.tensor(name)
    if adapter.convert is not None and (several := adapter.convert(name, tensor, checkpoint.config)) is not None:
        return several
    for pattern, replacement in adapter.rename:
        name = re.sub(pattern, replacement, name)
    return {name: tensor}


def _merged(
    checkpoint: PublishedCheckpoint,
    adapter: ModelAdapter,
    tokenizer: Any,
    *,
    dtype: "torch.dtype",
    device: "torch.device",
) -> tuple[Any, RewardHead]:
    """A PEFT adapter in its base: the score is the adapter's own."""
    from peft import PeftModel

    from assay.models.adapters.classifiers import label_names
    from assay.models.adapters.heads import LabelledHead, LayeredHead, linear

    assert checkpoint.base is not None
    head_shape = next(shape for name, shape in checkpoint.shapes.items() if re.fullmatch(adapter.requires[0], name))
    base = checkpoint.base
    state = {n: base.tensor(n) for n in base.shapes if n != _SCORE and not re.fullmatch(ModelAdapter.needless, n)}
    stock = ModelAdapter(reads=adapter.reads, source=adapter.source)
    model = stock_model(base, stock, state, dtype=dtype, labels=head_shape[0])
    check_vocabulary(checkpoint.name, tokenizer, model)
    try:
        with quiet_transformers():
            with catch_warnings():
                simplefilter("ignore", UserWarning)  # of lacking weights, which are refused here
                adapted: Any = PeftModel.from_pretrained(model, str(checkpoint.folder))
            _check_adapted(checkpoint, adapted)
            merged = adapted.merge_and_unload()
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise BadInputError(f"{checkpoint.name} does not fit its base {base.name}: {_line(error)}") from error
    layer = linear(merged.score.weight.float(), getattr(merged.score, "bias", None))
    count = layer.out_features
    head: RewardHead = LayeredHead([layer], minus=count == 2)
    if count > 2:
        head = LabelledHead([layer], label_names({}, count), [1 / count] * count)
    return fit(merged, tokenizer, device), head.eval().requires_grad_(False).to(device)


def _check_head(name: str, head: RewardHead, model: Any, size: int) -> None:
    """Raises BadInputError for a head of other hidden states than the model's."""
    import torch

    try:
        with torch.inference_mode():
            head.outputs(model, torch.zeros(1, size, dtype=model.dtype, device=model.device))
    except (RuntimeError, IndexError) as error:
        raise BadInputError(f"{name}: its reward head does not fit hidden states of {size}: {_line(error)}") from error


def _check_adapted(checkpoint: PublishedCheckpoint, adapted: Any) -> None:
    """Raises BadInputError for weights of the adapter that its file lacks, or that have no place in its base: peft
    would leave the base as it is there."""
    from peft import get_peft_model_state_dict

    own, stored = set(get_peft_model_state_dict(adapted, save_embedding_layers=False)), set(checkpoint.shapes)
    if lacking := sorted(own - stored):
        raise BadInputError(f"{checkpoint.name} lacks weights of its adapter: {', '.join(lacking[:3])}")
    if unknown := sorted(stored - own - set(adapted.state_dict())):
        raise BadInputError(f"{checkpoint.name} has weights that nothing here reads: {', '.join(unknown[:3])}")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
