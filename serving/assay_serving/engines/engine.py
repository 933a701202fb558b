"""The engines that run reward models, and the scorers that the transformers engine has for each type of model.

Covers: the two kinds of plug-ins, how a model's scorer is chosen. Leaves out: the engines themselves; finding models by
name and length corrections (`assay_serving.model_loader`).

A member of either kind is a class with a class method `load(config, loader) -> Scorer`; `loader` opens the models that
are parts of this one.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from assay.errors import BadInputError
from assay.registry import Kind
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import is_description, kind_of, known_spec
from assay_serving.scorer import Scorer

REWARD_SERVER = "reward-server"

ENGINES: Kind[Any] = Kind(
    "engine",
    "Runs a reward model: load(config, loader) returns a Scorer.",
    {
        "transformers": "assay_serving.engines.engine:TransformersEngine",
        "vllm": "assay_serving.vllm.engine_loader:InProcessLoader",
        "vllm-http": "assay_serving.vllm.engine_loader:VllmServerLoader",
        "sglang-http": "assay_serving.vllm.engine_loader:SglangServerLoader",
        REWARD_SERVER: "assay_serving.client.remote:RemoteScorer",
    },
    requires=("load",),
    makes=("info", "score"),
    option="engine",
)
SCORERS: Kind[Any] = Kind(
    "scorer",
    "Scores with one type of reward model in the transformers engine: load(config, loader) returns a Scorer.",
    {
        "scalar": "assay_serving.engines.transformers:TransformersScorer",
        "process_reward": "assay_serving.engines.process_reward:StepScorer",
        "adapted": "assay_serving.engines.published:PublishedLoader",
        "ratings": "assay_serving.engines.ratings:RatingsScorer",
        "principle": "assay_serving.engines.principle:PrincipleScorer",
        "generative": "assay_serving.generative.engine:GenerativeScorer",
        "implicit": "assay_serving.engines.implicit:ImplicitScorer",
        "ensemble": "assay_serving.engines.ensemble:EnsembleScorer",
        "head_ensemble": "assay_serving.engines.head_ensemble:HeadEnsembleScorer",
        "composed": "assay_serving.composition.part_loader:PartLoader",
        "rubric": "assay_serving.rubrics.loader:RubricLoader",
        "critique": "assay_serving.generative.critique:CritiqueScorer",
    },
    requires=("load",),
    makes=("info", "score"),
    option="kind",
)
#: Field of a scalar model's spec -> the scorer that reads it.
SCALAR_SCORERS = {"adapter": "adapted", "stepwise": "process_reward", "ratings": "ratings", "critique": "critique"}
DESCRIPTIONS = ("ensemble", "composed", "rubric")  #: whose parts may be principle models


class ModelLoader(Protocol):
    """What engines need to open the parts of a model."""

    def load(self, config: ModelConfig) -> Scorer: ...

    def locate(self, reference: str) -> str:
        """The folder or hub id of a model that may be named in the workspace."""
        ...


class TransformersEngine:
    """Runs models in this process by transformers, each by the scorer of its type."""

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader) -> Scorer:
        """Raises BadInputError for engine options, of which it has none, and for a question to no principle model."""
        if config.engine_options:
            raise BadInputError("the transformers engine has no options of its own", field="engine_options")
        kind = checked_kind(config)
        if is_description(config.reference) and Path(config.reference).expanduser().is_dir():
            config = replace(config, own_code=False)
        spec = known_spec(config.reference) if kind == "scalar" else None
        scorer = next((name for field, name in SCALAR_SCORERS.items() if getattr(spec, field, None) is not None), kind)
        if kind == "scalar" and (config.adapter is not None or (spec is None and is_published(config.reference))):
            scorer = "adapted"
        loaded: Scorer = SCORERS.accept(SCORERS.find(scorer, field="kind").load(config, loader), scorer)
        return loaded


def is_published(reference: str) -> bool:
    """Whether it is in a published form that needs an adapter."""
    from assay.models.adapters.kind import adapter_of

    return adapter_of(reference) is not None


def checked_kind(config: ModelConfig) -> str:
    """The kind of model; raises BadInputError where `question` is set and it is no principle model."""
    kind = kind_of(config.reference) if config.kind is None or is_description(config.reference) else config.kind
    if config.judge_profile is not None:
        if (config.kind or kind) not in ("scalar", "generative") or is_description(config.reference):
            raise BadInputError(f"{config.reference} is no generative model", field="judge_profile")
        kind = "generative"  # it has no spec that says so: a model with one is checked where it is loaded
    if config.question is not None and kind != "principle" and kind not in DESCRIPTIONS:
        raise BadInputError(f"a question is for principle models, and {config.reference} is {kind}", field="question")
    return kind
