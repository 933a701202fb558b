"""The model to train: a language model with a new head, or a reward model with its existing head.

Covers: keeping an existing head, initialising a new one, LoRA with the head always trained, frozen layers. Leaves
out: saving.

A new head starts at zero: every reward is 0 and the first loss exactly ln 2 for every seed, and the first gradient is
the mean difference between the features of chosen and rejected. The alternative `normal` has deviation 1 / (hidden +
1).

Modules trained with the model that are not saved with it: a second head, a tie parameter, the base's language head.
Covers: attaching such a module (its weights are trained, checkpointed and resumed like any other), finding it,
detaching it before the model is saved, setting the weights of the model's head. Leaves out: what the modules compute.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from assay.errors import BadInputError
from assay.models.chat.image_reader import ImageReader
from assay.models.checkpointing import checkpoint_layers
from assay.models.devices import pick_dtype
from assay.models.frozen_weights import keep_frozen, loading_device
from assay.models.heads import HEAD
from assay.models.loading import has_reward_head, load_scalar_model, load_tokenizer
from assay.models.parallelism.distributed import local_device
from assay.models.published_weights import share_of
from assay.models.unread_weights import read_weights
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.model_reference import media_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass
class TrainableModel:
    """`model` is the stock model whose forward pass is trained (with LoRA its layers hold the adapters).

    `new_head`: the modules named `heads` are newly initialised and trained with `head_lr`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    new_head: bool
    heads: tuple[str, ...] = (HEAD,)
    base: str = ""  #: the name that it was loaded by, where the method needs it
    images: ImageReader | None = None  #: of a model that reads them, where the method does
    unchecked: bool = False  #: its vocabulary head is to be compared with the model's logits once its weights are read

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}


def load_trainable(config: TrainingConfig, device: torch.device) -> TrainableModel:
    """On `device`, in train mode; trained weights are float32. See `prepare`."""
    new_head = not has_reward_head(config.base)
    tokenizer = load_tokenizer(config.base)
    model = load_scalar_model(
        config.base,
        tokenizer,
        dtype=torch.float32,
        device=loading_device(config.base_weights, device),
        new_head=new_head,
        seed=config.seed,
    )
    if new_head:
        _start_head(getattr(model, HEAD), config)
    images = ImageReader.load(config.base, tokenizer, media_of(None))
    return prepare(TrainableModel(model, tokenizer, new_head, images=images), config)


def prepare(trainable: TrainableModel, config: TrainingConfig, *, language_model: bool = False) -> TrainableModel:
    """Adapters, frozen layers and train mode, as the configuration says. Heads are always trained in full. Where
    products are bfloat16, frozen weights that it holds exactly are kept in it, unless `base_weights` says otherwise."""
    if config.lora is not None:
        trainable = _with_adapters(trainable, config.lora, config.seed, language_model=language_model)
    _freeze(trainable.model, config.freeze_layers)
    device = local_device(config.device)
    if config.base_weights != "auto" or pick_dtype(device, config.dtype) == torch.bfloat16:
        keep_frozen(trainable.model, config.base_weights, device)
    if config.gradient_checkpointing:
        checkpoint_layers(trainable.model, offload=config.offload_activations)
    trainable.model.train()
    return trainable


def _start_head(head: torch.nn.Linear, config: TrainingConfig) -> None:
    """`stock`: as transformers initialises it, from the seed."""
    if config.head_init == "stock":
        return
    with torch.no_grad():
        if config.head_init == "zero":
            head.weight.zero_()
        else:
            generator = torch.Generator().manual_seed(config.seed)
            drawn = torch.randn(head.weight.shape, generator=generator) / (head.in_features + 1)
            head.weight.copy_(drawn)
        if head.bias is not None:
            head.bias.zero_()


def _freeze(model: Any, layers: int) -> None:
    if not layers:
        return
    backbone = getattr(model, model.base_model_prefix)
    blocks = getattr(backbone, "layers", None) or getattr(backbone, "h", None)
    if blocks is None or layers > len(blocks):
        description = "no list of layers" if blocks is None else f"{len(blocks)} layers"
        raise BadInputError(f"cannot freeze {layers} layers: the model has {description}", field="freeze_layers")
    for part in (model.get_input_embeddings(), *blocks[:layers]):
        part.requires_grad_(False)


def _with_adapters(trainable: TrainableModel, lora: LoraConfig, seed: int, *, language_model: bool) -> TrainableModel:
    from peft import LoraConfig as PeftLoraConfig
    from peft import TaskType, get_peft_model

    if not language_model:
        read_weights(*(getattr(trainable.model, head) for head in trainable.heads))  # peft copies them
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", FutureWarning)  # raised by peft for its use of transformers
        torch.manual_seed(seed)
        adapter: Any = get_peft_model(
            trainable.model,
            PeftLoraConfig(
                # Not configurable: a wrong task type fails silently.
                task_type=TaskType.CAUSAL_LM if language_model else TaskType.SEQ_CLS,
                r=lora.rank,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules="all-linear",
                modules_to_save=None if language_model else list(trainable.heads),
            ),
        )
    return replace(trainable, model=adapter.get_base_model())


_PREFIX = "assay_"


class Parameter(torch.nn.Module):
    """One trained number, of shape [1]: a tensor without dimensions cannot be sharded."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor([value], dtype=torch.float32))


def attach(trainable: TrainableModel, name: str, module: torch.nn.Module, *, is_head: bool = True) -> TrainableModel:
    """Add `module` to the trained model, on its device. `is_head`: newly initialised, so trained with `head_lr`."""
    trainable.model.add_module(_PREFIX + name, module.to(trainable.model.device))
    return replace(trainable, heads=(*trainable.heads, _PREFIX + name)) if is_head else trainable


def auxiliary_module(trainable: TrainableModel, name: str) -> Any:
    """Raises AttributeError for a name that was not attached."""
    return getattr(trainable.model, _PREFIX + name)


def detach_modules(trainable: TrainableModel) -> None:
    """Remove all attached modules: what remains is the stock model."""
    for name in [name for name, _ in trainable.model.named_children() if name.startswith(_PREFIX)]:
        delattr(trainable.model, name)


def new_linear(trainable: TrainableModel, outputs: int, *, seed: int | None = None) -> torch.nn.Linear:
    """A head [outputs, hidden] without bias: zero, or random from `seed` with deviation 1 / (hidden + 1)."""
    hidden = int(trainable.model.config.get_text_config().hidden_size)
    head = torch.nn.Linear(hidden, outputs, bias=False)
    with torch.no_grad():
        if seed is None:
            head.weight.zero_()
        else:
            generator = torch.Generator().manual_seed(seed)
            head.weight.copy_(torch.randn(head.weight.shape, generator=generator) / (hidden + 1))
    return head


def set_head(trainable: TrainableModel, weight: torch.Tensor) -> None:
    """Set the weight [1, H] of the model's head; its bias, if any, becomes 0. Adapters keep two copies."""
    head = getattr(trainable.model, HEAD)
    copies = [head.original_module, *head.modules_to_save.values()] if hasattr(head, "modules_to_save") else [head]
    with torch.no_grad():
        for copy in copies:
            copy.weight.copy_(share_of(weight, copy.weight))
            if copy.bias is not None:
                copy.bias.zero_()
