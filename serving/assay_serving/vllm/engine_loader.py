"""Loading a checkpoint's scorer in an engine that takes rows of token ids: vLLM here, a vLLM or an SGLang server.

Covers: the spec's checks, the tokenizer from the checkpoint's folder, the engine's options, which weights a server
reports. Leaves out: the transformers engine (`assay_serving.engines`), what references stand for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import context_length, load_config, load_tokenizer, resolve_model, spec_of
from assay.models.spec import Judging, RewardModelSpec
from assay_serving.engines.engine import DESCRIPTIONS, ModelLoader, checked_kind, is_published
from assay_serving.engines.packed import require_parity
from assay_serving.engines.principle import principle_spec
from assay_serving.generative.engine import GenerativeScorer, judging_of
from assay_serving.generative.local import described, end_tokens, judge_spec
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import UNLIMITED
from assay_serving.vllm.connection import RemoteSettings
from assay_serving.vllm.rows import Classifier, LanguageModel, RunningModel, TextModel
from assay_serving.vllm.scorers import RowPrincipleScorer, RowScalarScorer, require_one_logit, spec_as_served

if TYPE_CHECKING:
    from assay_serving.generative.answers import Writer
    from assay_serving.scorer import Scorer
    from assay_serving.vllm.sglang_server import SglangServerEngine
    from assay_serving.vllm.vllm_server import VllmServerEngine

WEIGHTS = ("*.safetensors", "*.bin")


class RowEngineLoader(ABC):
    """The tokenizer and the description of a model come from its folder, with a remote engine too."""

    def __init__(self, config: ModelConfig) -> None:
        self.config, self.name = config, config.reference

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader | None = None) -> Scorer:
        """The scorer of a scalar, principle or generative model.

        Raises BadInputError for a model of another kind or for wrong options, BackendError where the engine cannot run
        it, cannot be reached or does not answer with rewards.
        """
        kind, name = checked_kind(config), config.reference
        if kind in DESCRIPTIONS:
            raise BadInputError(
                f"{name} is {kind}: serve its models with that engine, each under its name", field="engine"
            )
        if config.token_budget is not None:
            raise BadInputError("is for the transformers engine: this one plans its own passes", field="token_budget")
        by_kind = {"scalar": cls.scalar, "principle": cls.principle, "generative": cls.generative}
        if kind not in by_kind:
            raise BadInputError(f"{kind!r} is not one of {', '.join(by_kind)}", field="kind")
        return by_kind[kind](cls(config))

    @abstractmethod
    def classifier(self, length: int, *, regression: bool) -> Classifier:
        """`regression`: the checkpoint's config says so."""

    @abstractmethod
    def language_model(self, context: int) -> TextModel | LanguageModel: ...

    @property
    def weights_elsewhere(self) -> bool:
        """Whether the folder is only the description of a model whose weights the server has."""
        folder = Path(resolve_model(self.name))
        return not (folder.is_dir() and any(next(folder.glob(pattern), None) for pattern in WEIGHTS))

    def scalar(self) -> Scorer:
        folder = Path(resolve_model(self.name))
        if folder.is_dir() and RewardModelSpec.read(folder) is None and is_published(self.name):
            raise BadInputError(
                f"{self.name} is in a published form that only the transformers engine reads: leave --engine out",
                field="engine",
            )
        tokenizer = load_tokenizer(self.name)
        spec = self._description() or spec_of(
            self.name, template_hash=lambda: Renderer(tokenizer, max_length=UNLIMITED).template_hash
        )
        if spec.kind != "scalar":
            raise BadInputError(f"{self.name} is a reward model of kind {spec.kind}, not a scalar one")
        require_parity(self.config, spec)
        require_one_logit(self.name, spec)
        published = load_config(self.name)
        if not any("SequenceClassification" in kind for kind in (published.architectures or [])):
            raise BadInputError(
                f"{self.name} is a language model without a reward head; train one with: assay train bt"
            )
        if published.num_labels != 1:
            raise BadInputError(f"{self.name} has {published.num_labels} labels; a scalar reward model has one")
        regression = getattr(published, "problem_type", None) == "regression"
        length = self._length(spec.trained_length)
        engine = self.classifier(length, regression=regression)
        renderer = Renderer(tokenizer, max_length=_within(length, engine.running))
        return RowScalarScorer(engine, renderer, spec, name=self.config.name)

    def principle(self) -> Scorer:
        tokenizer, question = load_tokenizer(self.name), self.config.question
        spec = self._description()
        if spec is None:
            spec = principle_spec(self.name, tokenizer, question)
        elif spec.kind != "principle":
            raise BadInputError(f"{self.name} is a reward model of kind {spec.kind}, not a principle model")
        elif question is not None and question != spec.question:
            raise BadInputError(f"{self.name} was trained with the question {spec.question!r}; leave --question out")
        require_parity(self.config, spec)
        length = self._length(spec.trained_length, answer=1)
        engine = self.language_model(length + 1)  # the answer is one token
        renderer = Renderer(tokenizer, max_length=_within(length, engine.running, answer=1))
        return RowPrincipleScorer(engine, renderer, spec, name=self.config.name)

    def generative(self) -> Scorer:
        writer, spec = self.writer(judging_of(self.config))
        return GenerativeScorer(writer, spec)

    def writer(self, judging: Judging | None) -> tuple[Writer, RewardModelSpec]:
        """Of a generative model, pointwise or pairwise, and its spec. `judging`: how to ask a plain language model.
        Raises as `load`."""
        from assay_serving.vllm.writer import RowWriter

        renderer, spec = self._judge_spec(judging)
        assert spec.judging is not None  # checked
        limit = int(getattr(load_config(self.name), "max_position_embeddings", 0) or UNLIMITED)
        length = self.config.length(spec.trained_length)
        engine: Any = self.language_model(min(limit, length + spec.judging.max_new_tokens))
        spec = spec_as_served(spec, engine.running)
        info = described(self.config.name, spec, dtype=engine.running.dtype, device=engine.running.device)
        return RowWriter(engine, renderer, replace(info, max_length=length), ends=self._ends(renderer)), spec

    def _length(self, trained: int, *, answer: int = 0) -> int:
        """Tokens of a conversation; more than it was trained with only where asked for, as far as the model reads."""
        wanted = self.config.max_length
        longest = context_length(load_config(self.name)) - answer if wanted is not None and wanted > trained else 0
        return self.config.length(trained, longest)

    def _judge_spec(self, judging: Judging | None) -> tuple[Renderer, RewardModelSpec]:
        tokenizer = load_tokenizer(self.name)
        return judge_spec(self.config, tokenizer, judging, weights_elsewhere=self.weights_elsewhere)

    def _description(self) -> RewardModelSpec | None:
        """Of a folder without weights; None where the usual checks of files and spec can be made."""
        return RewardModelSpec.read(Path(resolve_model(self.name))) if self.weights_elsewhere else None

    def _ends(self, renderer: Renderer) -> list[int]:
        from transformers import GenerationConfig

        try:
            published: Any = GenerationConfig.from_pretrained(resolve_model(self.name))
        except OSError:  # the model has none
            published = load_config(self.name)
        return end_tokens(published, renderer)


class InProcessLoader(RowEngineLoader):
    """vLLM in this process."""

    weights_elsewhere = False

    def classifier(self, length: int, *, regression: bool) -> Classifier:
        from assay_serving.vllm.in_process import start_classifier

        return start_classifier(self.config, length, regression=regression)

    def language_model(self, context: int) -> TextModel:
        from assay_serving.vllm.in_process import start_language_model

        return start_language_model(self.config, context)


class VllmServerLoader(RowEngineLoader):
    """A vLLM server."""

    def classifier(self, length: int, *, regression: bool) -> Classifier:
        engine = self.language_model(length)
        engine.require_rewards(regression=regression)
        return engine

    def language_model(self, context: int) -> VllmServerEngine:
        from assay_serving.vllm.vllm_server import VllmServerEngine

        return VllmServerEngine.connect(RemoteSettings.from_options(self.config.engine_options))


class SglangServerLoader(RowEngineLoader):
    """An SGLang server."""

    def classifier(self, length: int, *, regression: bool) -> Classifier:
        engine = self.language_model(length)
        engine.require_rewards()
        return engine

    def language_model(self, context: int) -> SglangServerEngine:
        from assay_serving.vllm.sglang_server import SglangServerEngine

        return SglangServerEngine.connect(RemoteSettings.from_options(self.config.engine_options))

    def writer(self, judging: Judging | None) -> tuple[Writer, RewardModelSpec]:
        """By chat completions, with the server's own chat template."""
        from assay_serving.chat.client import ChatEndpoint
        from assay_serving.generative.remote import RemoteWriter

        _, spec = self._judge_spec(judging)
        settings = RemoteSettings.from_options(self.config.engine_options)
        engine = self.language_model(0)
        spec = spec_as_served(spec, engine.running)
        endpoint = ChatEndpoint(
            settings.url.rstrip("/") + "/v1",
            settings.model or engine.model,
            settings.key,
            concurrency=settings.concurrency,
            timeout=settings.timeout,
            retries=settings.retries,
        )
        engine.close()
        return RemoteWriter(endpoint, described(self.config.name, spec, dtype="unknown", device="remote")), spec


def _within(length: int, running: RunningModel, *, answer: int = 0) -> int:
    """Tokens of a conversation that model and engine both take."""
    return length if running.max_length is None else min(length, running.max_length - answer)
