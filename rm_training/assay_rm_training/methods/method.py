"""Training methods by the name that run records and commands use.

Covers: the protocol that `runs/train.py` runs, and the registry, which also finds the method of a resumed run. A
method is a frozen dataclass of JSON-ready fields. Leaves out: settings of the run (`training_config.py`), the loop
(`training/loop.py`), which sees only the method's task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, runtime_checkable

from assay import registry
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent

if TYPE_CHECKING:
    import torch

    from assay.models.chat.renderer import Renderer
    from assay.models.parallelism.strategy import SingleProcess
    from assay.models.spec import Kind, RewardModelSpec
    from assay.workspace import Workspace
    from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
    from assay_rm_training.evaluation.report import EvaluationReport
    from assay_rm_training.methods.task import TrainingTask
    from assay_rm_training.model.trainable_model import TrainableModel
    from assay_rm_training.training_config import TrainingConfig
    from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem, Scorer

_METHODS, _PREFERENCE = "assay_rm_training.methods", "assay_rm_training.preference"

TRAINING_METHODS: registry.Kind[type[MethodFields]] = registry.Kind(
    "training_method",
    "A way to train a reward model: a frozen dataclass of JSON-ready fields that follows `Method`.",
    {
        "bt": f"{_METHODS}.bradley_terry:BradleyTerry",
        "cloud": f"{_PREFERENCE}.critique:Cloud",
        "critique-sft": f"{_PREFERENCE}.critique:CritiqueSft",
        "dpo": f"{_PREFERENCE}.pairs:Dpo",
        "generative-sft": "assay_rm_training.generative.sft:GenerativeSft",
        "grm": f"{_METHODS}.grm:Grm",
        "ipo": f"{_PREFERENCE}.pairs:Ipo",
        "kto": f"{_PREFERENCE}.unpaired:Kto",
        "lists": f"{_METHODS}.ranked_lists:RankedLists",
        "odin": f"{_METHODS}.odin:Odin",
        "orpo": f"{_PREFERENCE}.pairs:Orpo",
        "principle": f"{_METHODS}.principle:Principle",
        "ratings": f"{_METHODS}.multi_objective:MultiObjective",
        "sft": f"{_PREFERENCE}.unpaired:Sft",
        "simpo": f"{_PREFERENCE}.pairs:SimPo",
        "steps": f"{_METHODS}.process_reward:ProcessRewardMethod",
    },
    requires=("name", "kind", "engine", "unit", "from_dict", "load", "read", "encode", "task", "responses", "evaluate"),
    option="--method",
)


class Engine(Protocol):
    """The serving engine's class for a trained model: wraps a model in memory, or loads one from its folder."""

    def __call__(self, model: Any, renderer: Renderer, spec: RewardModelSpec, *, name: str) -> Scorer: ...

    def load(self, config: ModelConfig) -> Scorer: ...


class Method(Protocol):
    """A training method. Rows are returned by `read`, items by `encode`; their types are the method's own. Rows can be
    iterated over several times and have a length; those of a file may be parsed anew each time (`RowFile`)."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def engine(self) -> Any:
        """An `Engine`."""
        ...

    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def unit(self) -> str:
        """What a row is called: pairs, lists, rows."""
        ...

    def to_dict(self) -> dict[str, Any]: ...

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        """The model to train: float32 weights on `device`, in train mode, `requires_grad` set."""
        ...

    def read(self, workspace: Workspace | None, data: str) -> Collection[Any]:
        """Rows of a snapshot or a file. Raises BadInputError naming file, row and field."""
        ...

    def encode(
        self, rows: Any, renderer: Renderer, *, collect: Collect = list, advance: Advance = silent
    ) -> EncodedDataset[Any]:
        """Items in the order of the rows, as `collect` keeps them."""
        ...

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> TrainingTask[Any]: ...

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        """Fields of the spec beyond those every reward model has."""
        ...

    def responses(self, rows: Any) -> list[ScoreItem]:
        """What the saved model scores for these rows: the parity check's sample."""
        ...

    def evaluate(self, scorer: Scorer, rows: Any, *, seed: int, advance: Advance = silent) -> EvaluationReport | None:
        """Figures on held-out rows; `advance` counts `responses(rows)`."""
        ...

    def card_rows(self) -> list[tuple[str, str]]:
        """Rows of the model card's table about the objective."""
        ...


@runtime_checkable
class SplitsRows(Protocol):
    """A method that holds rows out itself (`holds_out`, where it has that, says whether), adds rows, or adds to
    held-out rows what is known from the training rows."""

    def divide(self, rows: Any, eval_rows: Any | None) -> tuple[Collection[Any], Collection[Any] | None]:
        """(rows to train on, held-out rows), deterministic: a resumed run divides again."""
        ...

    def describe(self, rows: Any) -> dict[str, Any]:
        """JSON-ready figures of the training rows, for the run's metrics."""
        ...


@runtime_checkable
class PreparesData(Protocol):
    """A method whose items depend on the full training set, or on the model before training."""

    def prepare(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[Any],
        eval_data: EncodedDataset[Any] | None,
        parallel: SingleProcess | None = None,
    ) -> tuple[EncodedDataset[Any], EncodedDataset[Any] | None]:
        """The items to train on and to evaluate on. Called once, before training and before a saved state is loaded,
        in all processes together, which divide the model as `parallel` says (None: one process). New items are made by
        the first (`stored_dataset.with_items`). Must be deterministic."""
        ...


@runtime_checkable
class FinishesTraining(Protocol):
    """A method that trains modules which are not saved (`auxiliary_heads.py`)."""

    def finish(self, trainable: TrainableModel, data: EncodedDataset[Any]) -> dict[str, Any]:
        """Called once, after training: detach what is not saved. Returns fields of the spec."""
        ...


@dataclass(frozen=True)
class MethodFields:
    """Base of methods: fields to and from JSON, and no spec fields of its own."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Raises BadInputError for what this version does not know."""
        try:
            return cls(**cls.read_fields(payload))
        except (TypeError, KeyError) as error:
            raise BadInputError(f"not a training method of this version: {error}", field="method") from error

    @classmethod
    def read_fields(cls, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The fields' values from their JSON form."""
        return dict(payload)

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        return {}


def method_of(payload: Mapping[str, Any]) -> Method:
    """From {"name": ..., fields of the method}. Raises BadInputError for an unknown name or field."""
    settings = dict(payload)
    name = settings.pop("name", "bt")
    method: Any = TRAINING_METHODS.find(name, field="method").from_dict(settings)
    registry.remember(method, registry.Made(TRAINING_METHODS.name, name, MappingProxyType(settings)))
    return cast(Method, method)


def method_payload(method: Method) -> dict[str, Any]:
    """Inverse of `method_of`; a third-party method keeps the name it was found by."""
    origin = registry.made_by(method)
    return {"name": method.name if origin is None else origin.name, **method.to_dict()}
