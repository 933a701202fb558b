"""The policy under training and its reference.

Covers: loading both from one name, full or LoRA training, log-probs under either, a frozen teacher of the same
vocabulary, dividing it among processes, saving the result as a stock checkpoint, comparing that with the policy. With
LoRA the reference is the model with its adapter off; else it is a frozen copy, loaded only when something needs it.
Leaves out: sampling (`samplers`), optimising (`loop`).
"""

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.errors import BackendError, BadInputError
from assay.models.attention.packing import unwrapped
from assay.models.chat.image_reader import ImageReader, references_of
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Renderer
from assay.models.checkpointing import checkpoint_layers
from assay.models.devices import float32_products, unused_memory
from assay.models.frozen_weights import keep_frozen, loading_device
from assay.models.loading import load_causal_lm, load_tokenizer, resolve_model
from assay.models.memory_options import BaseWeights, check_base_weights
from assay.models.parallelism.strategy import SingleProcess
from assay.models.published_weights import write_model
from assay.models.quiet import quiet_transformers
from assay.models.spec import weights_digest
from assay.models.unread_weights import reads_later
from assay.models.vision import image_token_of
from assay.store.media import MediaFolder
from assay.system.atomic_files import sync_folder
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import ImageInputs, TokenScores, check_head, score_tokens
from assay_serving.model_reference import media_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: A reloaded checkpoint may differ from the trainer by this much in a log-prob: both in float32, adapters merged.
RELOAD_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on the named linear layers. rank 0 = train all weights. `base_weights`: of frozen linear
    layers; auto: bfloat16 where products are in it and it holds them exactly."""

    rank: int = 0
    alpha: int = 16
    targets: str = "all-linear"
    base_weights: BaseWeights = "auto"

    def __post_init__(self) -> None:
        if not self.rank:
            check_base_weights(self.base_weights, False, "none", "lora.base_weights")


class Policy:
    """A causal language model being trained. Always in eval mode: dropout would make the ratio differ from 1.

    `name` is the base model (and the reference). `autocast`: bfloat16 products around float32 weights; frozen weights
    that bfloat16 holds exactly are kept in it.
    `gradient_checkpointing`: of each layer only the input is kept, the rest is computed again: the same gradients.
    `offload_activations`: on the host.
    `teacher`: a model to imitate token by token. `media`: where the workspace's images are, by default those of the one
    that every command finds. Raises BadInputError for a teacher with another vocabulary, for
    checkpointing of a model that has none.
    """

    def __init__(
        self,
        name: str,
        *,
        device: torch.device,
        max_prompt_tokens: int,
        dtype: torch.dtype = torch.float32,
        autocast: bool = False,
        gradient_checkpointing: bool = False,
        offload_activations: bool = False,
        lora: Lora | None = None,
        with_reference: bool = False,
        teacher: str | None = None,
        chat: ChatOptions | None = None,
        media: Path | None = None,
        moment_bytes: int = 8,
    ) -> None:
        self.name = name
        self.device = device
        self.moment_bytes = moment_bytes  #: of its optimiser's state on the device, for one trained number
        self.autocast = autocast
        self.renderer = policy_renderer(name, max_prompt_tokens, chat, media)
        self.tokenizer: PreTrainedTokenizerBase = self.renderer.tokenizer
        self.lora = lora if lora is not None and lora.rank > 0 else None
        loads_on = device if self.lora is None else loading_device(self.lora.base_weights, device)
        base = load_causal_lm(name, self.tokenizer, dtype=dtype, device=loads_on)
        self._checked = not reads_later()
        if self._checked:
            check_head(base, loads_on)
        self.model: Any = with_adapter(base, self.lora, device, autocast=autocast) if self.lora else base
        self.has_reference = with_reference
        self._reference: PreTrainedModel | None = None
        if with_reference and self.lora is None:
            self._reference = self._load_frozen(name, self.tokenizer, dtype)
        self._teacher = None if teacher is None else self._load_teacher(teacher, dtype)
        self._recomputed: list[torch.nn.Module] = []
        if gradient_checkpointing:
            field = "optimisation.gradient_checkpointing"
            self._recomputed = checkpoint_layers(unwrapped(self.model), offload=offload_activations, field=field)
        self.parallel = SingleProcess()  #: how its work is divided among processes

    def _load_teacher(self, name: str, dtype: torch.dtype) -> "PreTrainedModel":
        tokenizer = load_tokenizer(name)
        if tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise BadInputError(f"{name} has another vocabulary than {self.name}", field="teacher")
        teacher = self._load_frozen(name, tokenizer, dtype)
        if self._checked:
            check_head(teacher, self.device)
        return teacher

    def _load_frozen(self, name: str, tokenizer: "PreTrainedTokenizerBase", dtype: torch.dtype) -> "PreTrainedModel":
        model = load_causal_lm(name, tokenizer, dtype=dtype, device=self.device).requires_grad_(False)
        if self.autocast:
            keep_frozen(model)
        return model

    @property
    def networks(self) -> list[Any]:
        """All that is loaded: the policy's, and a copy as its reference and a teacher where there are."""
        return [each for each in (self.model, self._reference, self._teacher) if each is not None]

    def divide(self, parallel: SingleProcess) -> None:
        """Share the work, and with it the weights where `parallel` does; before anything holds a reference to a
        weight."""
        if self.lora is not None:
            check_base_weights(self.lora.base_weights, True, parallel.name, "lora.base_weights")
        self.parallel = parallel
        parallel.prepare(self)
        for frozen in self.networks[1:]:
            parallel.shard(frozen, keeps_head=frozen is self._teacher)
        if not self._checked:  # the weights are there only now
            for network in filter(None, (self.model, self._teacher)):
                with torch.no_grad():
                    parallel.forward(network, partial(check_head, network, self.device))
            self._checked = True

    def gathered_parameters(self) -> AbstractContextManager[None]:
        """For the time of the block this process has all weights: to sample."""
        return self.parallel.gathered_parameters(self.model)

    @property
    def has_teacher(self) -> bool:
        return self._teacher is not None

    @property
    def version(self) -> str:
        """Content hash of the base checkpoint (of the hub id where it is not a folder)."""
        source = Path(resolve_model(self.name))
        return weights_digest(source) if source.is_dir() else str(source)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end the policy's turn."""
        configured = getattr(unwrapped(self.model).generation_config, "eos_token_id", None)
        listed = configured if isinstance(configured, list) else [configured]
        return frozenset(int(i) for i in (*listed, self.tokenizer.eos_token_id) if i is not None)

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """Name -> parameter that the optimiser changes; tied weights once."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def scores(
        self,
        batch: RolloutBatch,
        *,
        temperature: float,
        prune_log_ratio: float | None = None,
        extras: Set[str] = frozenset(),
    ) -> TokenScores:
        """Log-probs, entropy and the `extras` of the batch's tokens under the policy, on its device, forced tokens
        included. Differentiable."""
        return self._score(self.model, batch, temperature, prune_log_ratio, extras)

    @torch.no_grad()
    def reference_logp(
        self, batch: RolloutBatch, *, temperature: float, prune_log_ratio: float | None = None
    ) -> Tensor:
        """[B,T] log-probs under the reference. Raises ValueError where none is loaded."""
        with self.reference_model() as reference:
            return self._score(reference, batch, temperature, prune_log_ratio).logp

    @contextmanager
    def reference_model(self) -> Iterator[Any]:
        """The reference while the context lasts: its copy, or the model with its adapter off. Raises ValueError where
        none is loaded."""
        if not self.has_reference:
            raise ValueError("this policy was loaded without a reference")
        if self._reference is not None:
            yield self._reference
        else:
            with self.model.disable_adapter():
                yield self.model

    def _score(
        self,
        model: Any,
        batch: RolloutBatch,
        temperature: float,
        prune_log_ratio: float | None = None,
        extras: Set[str] = frozenset(),
    ) -> TokenScores:
        def computed() -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
            scores = score_tokens(
                model,
                batch.train_input_ids,
                batch.train_mask,
                batch.tokens,
                batch.present,
                temperature=temperature,
                prune_log_ratio=prune_log_ratio,
                extras=extras,
                teacher=self._teacher,
                teacher_pass=self.parallel.forward,
                images=self._images_of(batch),
            )
            return scores.logp, scores.entropy, dict(scores.extras)

        with self.precision(), self._recomputing():
            return TokenScores(*self.parallel.forward(model, computed))

    def _images_of(self, batch: RolloutBatch) -> ImageInputs | None:
        """Raises BadInputError for a response with places of images: there are images in contexts alone."""
        token = image_token_of(unwrapped(self.model).config)
        if bool((batch.tokens.eq(-1 if token is None else token) & batch.present).any()):
            raise BadInputError("a response with places of images", field="responses")
        rows = [references_of(item.training_context) for item in batch.items]
        return self.image_inputs(rows) if any(rows) else None

    def image_inputs(self, rows: Sequence[Sequence[str]]) -> ImageInputs:
        """Of rows of token ids whose contexts have these images."""
        reader = self.renderer.images
        assert reader is not None  # else the renderer would have refused the prompts
        return lambda network, ids: reader.inputs(network, ids, rows)

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        """Layers are checkpointed in train mode only, so they alone are in it, while a gradient is to be taken: what
        is inside them (dropout) stays in eval mode, and sampling keeps its cache."""
        for layer in self._recomputed:
            layer.training = torch.is_grad_enabled()
        try:
            yield
        finally:
            for layer in self._recomputed:
                layer.training = False

    @contextmanager
    def precision(self) -> Iterator[None]:
        """The number format of every forward pass, sampling included."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16) if self.autocast else nullcontext():
            yield

    @torch.no_grad()
    def float32_logp(self, probe: RolloutBatch) -> Tensor:
        """[B,T] log-probs of the batch without autocast: what a saved copy of the weights must give again."""
        with self._full_precision():
            return self._score(self.model, probe, 1.0).logp

    @contextmanager
    def _full_precision(self) -> Iterator[None]:
        autocast, self.autocast = self.autocast, False
        try:
            with float32_products(self.device, "highest"):
                yield
        finally:
            self.autocast = autocast

    def save(self, folder: Path) -> None:
        """Write a stock checkpoint (adapters merged) at `folder`, whole or not at all; `reload_difference` checks it.

        Raises BadInputError when the folder exists, BackendError when it cannot be written.
        """
        if folder.exists():
            raise BadInputError("already exists; choose another --name", file=folder)
        scratch = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            self.write_weights(scratch)
            with quiet_transformers():
                self.tokenizer.save_pretrained(scratch)
                if self.renderer.images is not None:
                    self.renderer.images.save(scratch)
            scratch.rename(folder)
            sync_folder(folder.parent)
        except OSError as error:
            raise BackendError(f"cannot write {folder}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def write_weights(self, folder: Path) -> None:
        """The weights (adapters merged) and the model's config as safetensors, neither synced nor checked: what an
        engine reads at once. Of divided weights all processes call this. Raises OSError."""
        with quiet_transformers():
            write_model(self.model, folder, main=self.parallel.main)


def policy_renderer(name: str, max_length: int, chat: ChatOptions | None, media: Path | None = None) -> Renderer:
    """Of the policy's prompts; a template of `chat` is saved with the tokenizer. See `Policy`."""
    tokenizer = load_tokenizer(name)
    folder: Callable[[], MediaFolder | None] = media_of(None) if media is None else lambda: MediaFolder(media)
    images = ImageReader.load(name, tokenizer, folder)
    if chat is not None and chat.template is not None:
        tokenizer.chat_template = chat.template
        if images is not None:
            images.processor.chat_template = chat.template
    return Renderer(tokenizer, max_length=max_length, chat=chat, images=images)


@torch.no_grad()
def reload_difference(
    folder: Path, probe: RolloutBatch, trained: Tensor, device: torch.device, media: Path | None = None
) -> float:
    """The largest difference of a log-prob of `probe` between the checkpoint at `folder` and `trained`
    (`Policy.float32_logp`).

    Loads the checkpoint: the trained policy and its optimiser need not be in memory any more. A GPU that has no room
    for it, which is float32, is not used.
    """
    free = unused_memory(device)
    if free is not None and 1.1 * sum(file.stat().st_size for file in folder.glob("*.safetensors")) > free:
        device = torch.device("cpu")
    reloaded = Policy(str(folder), device=device, max_prompt_tokens=1, media=media)
    return float((reloaded.float32_logp(probe) - trained.to(device)).abs().max())


def with_adapter(base: Any, lora: Lora, device: torch.device, *, autocast: bool) -> Any:
    """On `device`, with its frozen weights as `lora` says; base weights that will be 4 bit may be elsewhere."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.targets, lora_dropout=0.0, task_type="CAUSAL_LM"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        try:
            adapted = get_peft_model(base, config).eval()
        except ValueError as error:  # of its own classes
            message = " ".join(str(error).split())
            raise BadInputError(message, field="lora.targets" if "arget" in message else "lora") from error
    if autocast or lora.base_weights != "auto":
        keep_frozen(unwrapped(adapted), lora.base_weights, device)
    return adapted
