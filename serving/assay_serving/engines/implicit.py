"""Scoring with policies: the reward of a response is what its log-probability says, beside that under a reference.

Covers: any two causal language models of one vocabulary (`dpo:POLICY@REFERENCE`), one without a reference
(`dpo:POLICY`), and policies that were trained on preferences, whose spec names their reference. A prompt that several
responses share is computed once by each model. Leaves out: the forward pass (`packed`), training.

Rewards of one prompt can be compared; those of two prompts differ by the log of a partition function (arXiv 2305.18290,
equation 5).
"""

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from assay.errors import BackendError, BadInputError
from assay.models.chat.image_reader import ImageReader
from assay.models.chat.renderer import Encoded, Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.heads import answer_logits
from assay.models.loading import context_length, load_causal_lm, load_config, load_tokenizer, spec_of
from assay.models.readings import Implicit, implicit_parts
from assay.models.spec import Kind, RewardModelSpec
from assay.models.token_losses import token_losses
from assay.score import ScoreFailure
from assay_serving.engines.packed import PackedScorer, for_scoring, require_parity
from assay_serving.engines.token import Reading, ScalarReader
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import media_of
from assay_serving.scorer import UNLIMITED, ScoreItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from transformers import PreTrainedModel

    from assay_serving.engines.engine import ModelLoader

BETA = 0.1  #: of a pair of models whose spec names none


class ImplicitScorer(ScalarReader, PackedScorer):
    """Reads log-probabilities of responses; see `Implicit` for the reward."""

    kind: ClassVar[Kind] = "implicit"

    def __init__(
        self,
        model: "PreTrainedModel",
        renderer: Renderer,
        spec: RewardModelSpec,
        *,
        reference: "PreTrainedModel | None" = None,
        **options: Any,
    ) -> None:
        """`reference`: loaded by the spec where it is not given."""
        super().__init__(model, renderer, spec, **options)
        if reference is None and self.implicit.reference is not None:
            reference = load_reference(self.implicit, renderer.tokenizer, model)
        self.reference = reference

    @property
    def implicit(self) -> Implicit:
        if self.spec.implicit is None:
            raise BadInputError(f"the spec of {self.spec.base} does not say how a policy is read as a reward model")
        return self.spec.implicit

    @classmethod
    def load(cls, config: ModelConfig, loader: "ModelLoader | None" = None) -> Self:
        """Load a policy, by its folder or hub id or as `dpo:POLICY@REFERENCE`.

        Raises BadInputError for a reference of another vocabulary or with other files than the policy was trained
        with, and for a checkpoint that failed its parity check (unless the config allows it).
        """
        name, reference = implicit_parts(config.reference) or (config.reference, None)
        device = pick_device(config.device)
        tokenizer = load_tokenizer(name)
        images = ImageReader.load(name, tokenizer, media_of(loader))
        spec = spec_of(
            name, template_hash=lambda: Renderer(tokenizer, max_length=UNLIMITED, images=images).template_hash
        )
        if name != config.reference:
            spec = _paired(spec, reference)
        require_parity(config, spec)
        model = load_causal_lm(name, tokenizer, dtype=pick_dtype(device, config.dtype), device=device)
        options: dict[str, Any] = {"images": images}
        if spec.implicit is not None and spec.implicit.reference is not None:
            options["reference"] = for_scoring(load_reference(spec.implicit, tokenizer, model))
        return cls.of_model(model, tokenizer, spec, config, **options)

    def read(self, item: ScoreItem) -> Reading | ScoreFailure:
        """The item's tokens, and the positions before those of its response."""
        spoken = self.spoken(item)
        encoded = spoken if isinstance(spoken, ScoreFailure) else self.encode(spoken)
        if isinstance(encoded, ScoreFailure):
            return encoded
        if encoded.truncated and item.rendered is not None and item.rendered.keep is None:
            return self.failure("too_long", f"the text does not fit in {self.renderer.max_length} tokens")
        if not 0 < encoded.response_start < len(encoded):
            return self.failure("bad_input", "the response has no token that another comes before")
        return Reading(encoded, tuple(range(encoded.response_start - 1, len(encoded) - 1)))

    def read_states(self, states: "torch.Tensor", readings: "Sequence[Reading]") -> "torch.Tensor":
        """Log-probabilities [P, 1] of the responses' tokens, in float32."""
        import torch

        targets = [token for reading in readings for token in _response(reading.conversation)]
        losses, _ = token_losses(self.head, states, torch.tensor(targets, device=states.device))
        return -losses[:, None]

    def head(self, states: "torch.Tensor") -> "torch.Tensor":
        """Logits [P, V] in float32."""
        return answer_logits(self.model, states)

    def _forward(self, batch: list[list[int]], rows: "Sequence[Reading]") -> "list[torch.Tensor]":
        """Log-probabilities [tokens, 1] of each response; [tokens, 2] with those under the reference."""
        import torch

        outputs = super()._forward(batch, rows)
        if self.reference is None:
            return outputs
        other = copy(self)
        other.model, other.reference = self.reference, None
        return [torch.cat(both, dim=1) for both in zip(outputs, other._forward(batch, rows), strict=True)]

    def reward(self, outputs: "torch.Tensor") -> float:
        sums = outputs.double().sum(0)
        value = sums[0] - sums[1] if len(sums) == 2 else sums[0] / len(outputs)
        return self.implicit.beta * float(value)

    @property
    def score_identity(self) -> str | None:
        return f"{super().score_identity} {self.implicit}"


def load_reference(implicit: Implicit, tokenizer: Any, policy: "PreTrainedModel") -> "PreTrainedModel":
    """The reference, on the policy's device and in its number format. Raises BadInputError for another vocabulary, and
    BackendError for other files than the policy's spec was written for."""
    assert implicit.reference is not None
    name = implicit.reference
    reference_tokenizer = load_tokenizer(name)
    if reference_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise BadInputError(f"the policy and its reference {name} have different vocabularies")
    version = spec_of(name, template_hash=str).version
    if implicit.reference_version not in ("", version):
        raise BackendError(
            f"the reference {name} is not the one that the policy was trained with: files of version {version}, not "
            f"{implicit.reference_version}"
        )
    return load_causal_lm(name, reference_tokenizer, dtype=policy.dtype, device=policy.device)


def _paired(spec: RewardModelSpec, reference: str | None) -> RewardModelSpec:
    """The policy's spec as it is read beside this reference; its version names both models' files."""
    beta = spec.implicit.beta if spec.implicit is not None else BETA
    version, length = "", spec.trained_length
    if reference is not None:
        version = spec_of(reference, template_hash=str).version
        length = min(length, context_length(load_config(reference)))
    return replace(
        spec,
        kind="implicit",
        trained_length=length,
        implicit=Implicit(beta, reference, version),
        version="@".join(filter(None, (spec.version, version))),
    )


def _response(conversation: Encoded) -> tuple[int, ...]:
    return conversation.ids[conversation.response_start :]
