"""From a checkpoint's name and an engine's name to a scorer that runs it there.

Covers: the spec's checks, the tokenizer from the checkpoint's folder, the engine's options, what a server says of
itself. Leaves out: the reference engine and what names stand for (`assay_serving.model_loader`, which calls this).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_config, load_tokenizer, resolve_model, spec_of
from assay.models.spec import Judging, RewardModelSpec
from assay_serving.engines.packed import default_name, require_parity
from assay_serving.engines.principle import principle_spec
from assay_serving.engines.token import UNLIMITED
from assay_serving.generative.local import described, end_tokens, judge_spec
from assay_serving.vllm.connection import RemoteSettings
from assay_serving.vllm.rows import Running
from assay_serving.vllm.scorers import RowPrincipleScorer, RowScalarScorer, known_as, require_one_logit

if TYPE_CHECKING:
    from assay_serving.generative.answers import Writer
    from assay_serving.scorer import Scorer

IN_PROCESS, VLLM_SERVER, SGLANG_SERVER = "vllm", "vllm-http", "sglang-http"
ENGINES = (IN_PROCESS, VLLM_SERVER, SGLANG_SERVER)
WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True)
class Opening:
    """A checkpoint and the engine to run it. Fields as of `assay_serving.model_loader.load_engine`; `name` is what the
    tokenizer and the description come from, with a remote engine too."""

    name: str
    engine: str
    options: Mapping[str, Any] = field(default_factory=dict)
    served_as: str | None = None
    device: str = "auto"
    dtype: str = "float32"
    max_length: int | None = None
    question: str | None = None
    allow_failed_parity: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            known = ", ".join(("transformers", *ENGINES))
            raise BadInputError(f"there is no engine {self.engine!r}; there are {known}", field="engine")

    def open(self, kind: str, *, judging: Judging | None = None) -> Scorer:
        """The scorer of a scalar, principle or generative model. `judging`: how to ask a plain language model.

        Raises BadInputError for a model of another kind or for wrong options, BackendError where the engine cannot run
        it, cannot be reached or does not answer with rewards.
        """
        if kind == "scalar":
            return self._scalar()
        if kind == "principle":
            return self._principle()
        if kind == "generative":
            from assay_serving.generative.engine import GenerativeScorer

            writer, spec = self.writer(judging)
            return GenerativeScorer(writer, spec)
        raise BadInputError(f"{kind!r} is not one of scalar, principle, generative", field="kind")

    @property
    def _served_as(self) -> str:
        return self.served_as or default_name(self.name)

    @property
    def _weights_elsewhere(self) -> bool:
        """Whether the folder is only the description of a model whose weights the server has."""
        folder = Path(resolve_model(self.name))
        here = folder.is_dir() and any(next(folder.glob(pattern), None) for pattern in WEIGHTS)
        return self.engine != IN_PROCESS and not here

    def _scalar(self) -> RowScalarScorer:
        tokenizer = load_tokenizer(self.name)
        spec = self._own_spec() or spec_of(
            self.name, template_hash=Renderer(tokenizer, max_length=UNLIMITED).template_hash
        )
        if spec.kind != "scalar":
            raise BadInputError(f"{self.name} is a {spec.kind} reward model, not a scalar one")
        require_parity(self.name, spec, allowed=self.allow_failed_parity)
        require_one_logit(self.name, spec)
        config = load_config(self.name)
        if not any("SequenceClassification" in kind for kind in (config.architectures or [])):
            raise BadInputError(
                f"{self.name} is a language model without a reward head; train one with: assay train bt"
            )
        if config.num_labels != 1:
            raise BadInputError(f"{self.name} has {config.num_labels} labels; a scalar reward model has one")
        regression = getattr(config, "problem_type", None) == "regression"
        length = self._length(spec)
        if self.engine == IN_PROCESS:
            from assay_serving.vllm.in_process import start_classifier

            engine: Any = start_classifier(
                resolve_model(self.name),
                dtype=self.dtype,
                device=self.device,
                max_length=length,
                regression=regression,
                options=self.options,
            )
        else:
            engine = self._server()
            if self.engine == VLLM_SERVER:
                engine.require_rewards(regression=regression)
            else:
                engine.require_rewards()
        renderer = Renderer(tokenizer, max_length=_within(length, engine.running))
        return RowScalarScorer(engine, renderer, spec, name=self._served_as)

    def _principle(self) -> RowPrincipleScorer:
        tokenizer = load_tokenizer(self.name)
        own = self._own_spec()
        if own is None:
            own = principle_spec(self.name, Renderer(tokenizer, max_length=UNLIMITED), self.question)
        elif own.kind != "principle":
            raise BadInputError(f"{self.name} is a {own.kind} reward model, not a principle model")
        elif self.question is not None and self.question != own.question:
            raise BadInputError(f"{self.name} was trained with the question {own.question!r}; leave --question out")
        require_parity(self.name, own, allowed=self.allow_failed_parity)
        length = self._length(own)
        engine = self._language_model(length + 1)  # the answer is one token
        renderer = Renderer(tokenizer, max_length=_within(length, engine.running, answer=1))
        return RowPrincipleScorer(engine, renderer, own, name=self._served_as)

    def writer(self, judging: Judging | None) -> tuple[Writer, RewardModelSpec]:
        """Of a generative model, pointwise or pairwise, and its spec. Raises as `open`."""
        renderer = Renderer(load_tokenizer(self.name), max_length=UNLIMITED)
        spec = judge_spec(
            self.name,
            renderer,
            judging,
            allow_failed_parity=self.allow_failed_parity,
            weights_elsewhere=self._weights_elsewhere,
        )
        assert spec.judging is not None  # checked
        if self.engine == SGLANG_SERVER:
            return self._chat_writer(spec)
        from assay_serving.vllm.writer import RowWriter

        limit = int(getattr(load_config(self.name), "max_position_embeddings", 0) or UNLIMITED)
        engine = self._language_model(min(limit, self._length(spec) + spec.judging.max_new_tokens))
        spec = known_as(spec, engine.running)
        info = described(self._served_as, spec, dtype=engine.running.dtype, device=engine.running.device)
        info = replace(info, max_length=self._length(spec))
        return RowWriter(engine, renderer, info, ends=self._ends(renderer)), spec

    def _chat_writer(self, spec: RewardModelSpec) -> tuple[Writer, RewardModelSpec]:
        """Chat completions, with the server's own chat template."""
        from assay_serving.generative.remote import JudgeEndpoint, RemoteWriter

        settings = RemoteSettings.from_options(self.options)
        engine = self._server()
        spec = known_as(spec, engine.running)
        endpoint = JudgeEndpoint(
            settings.url.rstrip("/") + "/v1",
            settings.model or engine.model,
            settings.key,
            concurrency=settings.concurrency,
            timeout=settings.timeout,
            retries=settings.retries,
        )
        engine.close()
        return RemoteWriter(endpoint, described(self._served_as, spec, dtype="unknown", device="remote")), spec

    def _language_model(self, context: int) -> Any:
        if self.engine != IN_PROCESS:
            return self._server()
        from assay_serving.vllm.in_process import start_language_model

        return start_language_model(
            resolve_model(self.name), dtype=self.dtype, device=self.device, max_length=context, options=self.options
        )

    def _server(self) -> Any:
        settings = RemoteSettings.from_options(self.options)
        if self.engine == VLLM_SERVER:
            from assay_serving.vllm.vllm_server import VllmServerEngine

            return VllmServerEngine.connect(settings)
        from assay_serving.vllm.sglang_server import SglangServerEngine

        return SglangServerEngine.connect(settings)

    def _own_spec(self) -> RewardModelSpec | None:
        """Of a folder without weights; None where the usual checks of files and spec can be made."""
        return RewardModelSpec.read(Path(resolve_model(self.name))) if self._weights_elsewhere else None

    def _length(self, spec: RewardModelSpec) -> int:
        return min(spec.trained_length, self.max_length or spec.trained_length)

    def _ends(self, renderer: Renderer) -> list[int]:
        from transformers import GenerationConfig

        try:
            published: Any = GenerationConfig.from_pretrained(resolve_model(self.name))
        except OSError:  # it brings none
            published = load_config(self.name)
        return end_tokens(published, renderer)


def _within(length: int, running: Running, *, answer: int = 0) -> int:
    """Tokens of a conversation that model and engine both take."""
    return length if running.max_length is None else min(length, running.max_length - answer)
