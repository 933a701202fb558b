"""A causal language model on this machine as a judge's writer, by transformers.

Covers: loading with the spec's checks, batches halved where the memory runs out. Leaves out: questions, verdicts and
log-probs of the labels (`token_writer`), rewards (`engine`, `pairwise`), training.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from assay.errors import BackendError, BadInputError
from assay.models.attention.packing import can_pack, forward, group_of
from assay.models.chat.renderer import Renderer
from assay.models.devices import free_memory, is_out_of_memory, pick_device, pick_dtype
from assay.models.heads import answer_logits
from assay.models.loading import load_causal_lm, load_config, load_tokenizer, resolve_model
from assay.models.spec import Judging, RewardModelSpec, weights_digest
from assay.score import ScoreFailure
from assay_serving.engines.batching import plan_groups
from assay_serving.engines.packed import CPU_PASS, for_scoring, require_parity
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.generation import Sampled, SamplingParams, generate, next_logp
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.generative.token_writer import TOKEN_BUDGET, TokenWriter
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import UNLIMITED, ModelInfo
from assay_serving.tools.kind import granted
from assay_serving.tools.toolbox import toolbox

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LocalWriter(TokenWriter):
    repeatable: ClassVar[bool] = True

    def __init__(
        self, model: "PreTrainedModel", renderer: Renderer, info: ModelInfo, token_budget: int = TOKEN_BUDGET
    ) -> None:
        """`model` is put into eval mode."""
        self.model = model.eval()  # type: ignore[no-untyped-call]
        context = int(getattr(model.config, "max_position_embeddings", 0) or UNLIMITED)
        super().__init__(renderer, info, context=context, token_budget=token_budget)
        self._ends = end_tokens(model.generation_config, self.renderer)

    def generate(
        self, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams, *, samples: int, seed: int
    ) -> Sequence[list[Sampled]]:
        return generate(self.model, prompts, sampling, samples=samples, ends=self._ends, seed=seed)

    def next_logps(self, rows: Sequence[list[int]], tokens: Sequence[int]) -> list[dict[int, float]]:
        import torch

        if not can_pack(self.model, max(map(len, rows), default=0)):
            logps = next_logp(self.model, rows)[:, list(tokens)].tolist()
            return [dict(zip(tokens, row, strict=True)) for row in logps]
        results: list[dict[int, float]] = [{} for _ in rows]
        preferred = CPU_PASS if self.model.device.type == "cpu" else None
        for groups in plan_groups(rows, self.token_budget, preferred=preferred):  # answers to one question begin alike
            with torch.inference_mode():
                states = forward(self.model, [group_of([rows[i] for i in group]) for group in groups]).last()
                logp = answer_logits(self.model, states).log_softmax(-1)[:, list(tokens)].tolist()
            for index, row in zip((i for group in groups for i in group), logp, strict=True):
                results[index] = dict(zip(tokens, row, strict=True))
        return results

    def _answers(
        self, prompts: Sequence[tuple[int, ...]], form: JudgeFormat, judging: Judging, seed: int
    ) -> Sequence[list[JudgeSample] | ScoreFailure]:
        """One batch; halved where the memory does not hold it."""
        try:
            return super()._answers(prompts, form, judging, seed)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        free_memory(self.model.device)
        if len(prompts) == 1:
            return [self._failure("backend", f"out of memory on a question of {len(prompts[0])} tokens")]
        middle = len(prompts) // 2
        return [
            *self._answers(prompts[:middle], form, judging, seed),
            *self._answers(prompts[middle:], form, judging, seed),
        ]

    @classmethod
    def load(
        cls,
        config: ModelConfig,
        *,
        judging: Judging | None = None,
    ) -> "tuple[LocalWriter, RewardModelSpec]":
        """A model and its spec. `judging`: settings for a plain language model, or instead of the spec's.

        Raises BadInputError for a model of another kind, one that failed its parity check, or a plain language model
        without `judging`; BackendError where the chat template or the question is not the one it was trained with.
        """
        name, device = config.reference, pick_device(config.device)
        tokenizer = load_tokenizer(name)
        renderer, spec = judge_spec(config, tokenizer, judging)
        model = load_causal_lm(name, tokenizer, dtype=pick_dtype(device, config.dtype), device=device)
        for_scoring(model)
        info = info_of(config.name, spec, model)
        info = replace(info, max_length=config.length(info.max_length))
        return cls(model, renderer, info, config.token_budget or TOKEN_BUDGET), spec


def judge_spec(
    config: ModelConfig,
    tokenizer: "PreTrainedTokenizerBase",
    judging: Judging | None,
    *,
    weights_elsewhere: bool = False,
) -> tuple[Renderer, RewardModelSpec]:
    """The renderer and the checkpoint's spec, or one for a plain language model with the settings `judging`; of tools
    only those that are `granted`.

    `weights_elsewhere`: the folder may hold no weights, so its files are not compared with the spec's version.
    Raises as `LocalWriter.load`.
    """
    name = config.reference
    source = Path(resolve_model(name))
    spec = RewardModelSpec.read(source) if source.is_dir() else None
    if spec is not None and (spec.kind != "generative" or spec.judging is None):
        raise BadInputError(f"{name} is a reward model of kind {spec.kind}, not a generative one")
    if spec is None and judging is None:
        raise BadInputError(f"{name} has no spec with judge settings; name a format")
    if spec is not None and not weights_elsewhere and (digest := weights_digest(source)) != spec.version:
        raise BadInputError(f"{name} is not the checkpoint its spec describes: its files have version {digest}")
    renderer = Renderer(tokenizer, max_length=UNLIMITED)  # runs the template
    if spec is None:
        published = load_config(name)
        limit = int(getattr(published, "max_position_embeddings", 0) or 4096)
        version = weights_digest(source) if source.is_dir() else str(getattr(published, "_commit_hash", "unknown"))
        spec = RewardModelSpec("generative", name, renderer.template_hash, limit, version, principles=True)
    settings = judging or spec.judging
    assert settings is not None  # checked
    spec = replace(spec, judging=replace(settings, tools=granted(settings.tools, config.tools)))
    require_parity(config, spec)
    check_spec(name, spec, renderer)
    return renderer, spec


def end_tokens(generation_config: Any, renderer: Renderer) -> list[int]:
    """Token ids that end an answer: those of the published model and the tokenizer's."""
    published = getattr(generation_config, "eos_token_id", None)
    ends = published if isinstance(published, list) else [published]
    return sorted({int(e) for e in [*ends, renderer.tokenizer.eos_token_id] if e is not None})


def check_spec(name: str, spec: RewardModelSpec, renderer: Renderer) -> None:
    """Raises BackendError for another template or question than the model was trained with, BadInputError for a tool
    that is not installed."""
    if spec.template_hash != renderer.template_hash:
        raise BackendError(
            f"{name} was trained with chat template {spec.template_hash}, "
            f"its tokenizer now gives {renderer.template_hash}: its scores would not be valid"
        )
    assert spec.judging is not None
    form = format_named(spec.judging.format)
    if spec.judging.template != form.hash:
        raise BackendError(
            f"{name} was trained with judge question {spec.judging.template}, this version of Assay has {form.hash}: "
            "its verdicts would not be valid"
        )
    toolbox(spec.judging.tools)  # raises BadInputError for a tool that is not there


def info_of(name: str, spec: RewardModelSpec, model: Any) -> ModelInfo:
    """The description of a generative model that is loaded here."""
    from assay.models.attention.prepacked import number_format  # imports torch

    attention = str(getattr(model.config, "_attn_implementation", "") or "")
    return described(name, spec, dtype=number_format(model), device=str(model.device), attention=attention)


def described(name: str, spec: RewardModelSpec, *, dtype: str, device: str, attention: str = "") -> ModelInfo:
    """The description of a generative model. Its template hash covers the question and how it is sampled."""
    import hashlib

    judging = spec.judging
    if judging is not None and Path(judging.format).is_absolute():  # a file, whose content is in `template`
        judging = replace(judging, format="")
    question_key = f"{spec.template_hash}\x1f{judging}"
    if judging is not None and judging.tools:
        question_key += f"\x1f{judging.tool_rounds}\x1f{judging.tool_errors}\x1f{toolbox(judging.tools).identity}"
    template_hash = hashlib.sha256(question_key.encode()).hexdigest()[:16]
    return ModelInfo(
        name=name,
        version=spec.version,
        kind="generative",
        template_hash=template_hash,
        max_length=spec.trained_length,
        calibrated=spec.calibration is not None,
        parity=spec.parity,
        dtype=dtype,
        device=device,
        attention=attention,
        calibration=spec.calibration.id if spec.calibration is not None else None,
        contamination=spec.contamination,
        trained_principles=spec.trained_principles,
        curve=spec.calibration.curve if spec.calibration is not None else None,
    )
