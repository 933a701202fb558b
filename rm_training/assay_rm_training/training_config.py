"""Settings of a training run, for every method; command line, run record and model card derive from them.

Leaves out: the methods (`methods/method.py`), the run (`runs/train.py`).
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from assay.errors import BadInputError
from assay.models.devices import FORMATS, check_format_name
from assay.models.memory_options import (
    BaseWeights,
    OptimizerName,
    check_base_weights,
    check_offload,
    check_optimiser,
    has_bitsandbytes,
)
from assay.models.parallelism.distributed import Parallel
from assay.runs.trackers import TRACKERS
from assay.settings import CheckedSettings, Help, check_settings

Schedule = Literal["constant", "linear", "cosine", "wsd"]
Keep = Literal["last", "best"]
Metric = Literal["nll", "accuracy"]
HeadInit = Literal["zero", "normal", "stock"]
SaveDtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class LoraConfig(CheckedSettings):
    """Low-rank adapters on every linear layer of the backbone; the head is always trained in full."""

    rank: Annotated[int, Ge(1)] = 16
    alpha: int = 32
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0


@dataclass(frozen=True)
class TrainingConfig:
    """Everything except method and data that determines the trained weights.

    `lr`: None takes the method's default, else DEFAULT_LR or, with LoRA, DEFAULT_LORA_LR. `micro_batch_tokens`: all
    sides of the items included; it changes time and memory, not the gradient (0: 1024 on a CPU, else 16384). `dtype`:
    auto is bfloat16 where it is fast; weights and optimiser are always float32. `share_prefix`: compute the common
    prefix of an item's sequences once, where the model allows. `head_init`: see `trainable_model.py`. `batch_start`
    grows over the first `batch_ramp_ratio` of the run's items. `eps` is far below the usual 1e-8: under a head that
    starts at zero the backbone's first gradients are tiny. `parallel`: see `assay.models.parallelism.strategy`.
    `keep`, `patience`: see `early_stopping.py`. `preset`: the published settings (`presets.py`) that defaults came
    from; recorded only.
    """

    base: str
    lr: Annotated[
        float | None, Help("Peak learning rate. Default: 3e-5, of policies 1e-6, sft 2e-5; with --lora ten times that.")
    ] = None
    head_lr: Annotated[float, Ge(0), Help("Peak rate of a new head; 0 = --lr, as of an existing head.")] = 1e-3
    batch_size: Annotated[int, Ge(1), Help("Pairs (lists, rows) of one optimiser step.")] = 16
    micro_batch_tokens: Annotated[
        int, Ge(0), Help("Positions of one forward pass: time and memory only; 0 = by device.")
    ] = 0
    share_prefix: bool = True
    epochs: Annotated[int, Ge(1), Help("Passes over the data.")] = 1
    schedule: Annotated[Schedule, Help("Of the learning rate.")] = "cosine"
    warmup_ratio: Annotated[float, Ge(0), Le(1), Help("Share of the steps with a rising rate.")] = 0.1
    weight_decay: Annotated[float, Ge(0), Help("AdamW's, on matrices.")] = 0.0
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    max_length: Annotated[
        int | None, Ge(1), Help("Tokens of a conversation; older turns are dropped. Default: the base's own length.")
    ] = None
    dtype: Annotated[str, Help("auto, float32 or bfloat16, of the matrix products.")] = "auto"
    device: Annotated[str, Help("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    lora: LoraConfig | None = None
    base_weights: Annotated[
        BaseWeights,
        Help("Of frozen linear layers, for --lora. auto: bfloat16 where it is exact and products are in it."),
    ] = "auto"
    head_init: HeadInit = "zero"
    freeze_layers: Annotated[int, Ge(0), Help("Keep the embeddings and this many lowest layers.")] = 0
    seed: Annotated[int, Help("Of data order, head, adapters and dropout.")] = 0
    eval_every: Annotated[int, Ge(0), Help("Steps between evaluations on held-out data; 0 = none.")] = 0
    save_every: Annotated[int, Ge(0), Help("Steps between saved states, for --resume; 0 = at the end.")] = 50
    save_dtype: Annotated[SaveDtype, Help("Of the saved weights.")] = "float32"
    min_lr_ratio: Annotated[float, Ge(0), Le(1), Help("Final rate of a decaying schedule, as a share of --lr.")] = 0.0
    decay_ratio: Annotated[float, Ge(0), Le(1), Help("Share of the steps in which wsd decays.")] = 0.2
    batch_start: Annotated[int, Ge(0), Help("First batch size, growing to --batch-size; 0 = no growth.")] = 0
    batch_ramp_ratio: Annotated[float, Ge(0), Le(1), Help("Share of the run over which batches grow.")] = 0.1
    optimizer: Annotated[
        OptimizerName,
        Help("Moments in 8 bit, or on the host with float32 weights: less of a GPU; no adafactor with fsdp."),
    ] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: Annotated[float, Gt(0), Help("AdamW's.")] = 1e-10
    gradient_checkpointing: Annotated[bool, Help("Less memory, about a third more work, same gradients.")] = False
    offload_activations: Annotated[bool, Help("What checkpointing keeps waits in the host's memory.")] = False
    parallel: Annotated[Parallel, Help("In several processes: ddp or fsdp; auto = ddp.")] = "auto"
    keep: Annotated[Keep, Help("Weights of the last step, or of the best evaluation.")] = "last"
    patience: Annotated[int, Ge(0), Help("Stop after this many evaluations without improvement; 0 = never.")] = 0
    metric: Annotated[Metric, Help("Metric of --keep best and --patience.")] = "nll"
    preset: str | None = None
    update_norm: Annotated[bool, Help("Record the norm of each update, which takes a copy of the weights.")] = False
    track: Annotated[
        tuple[str, ...], Help(f"Where metrics also go, repeatable: {TRACKERS.help()}.", metavar="TRACKER")
    ] = ()

    DEFAULT_LR = 3e-5
    DEFAULT_LORA_LR = 3e-4

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.learning_rate > 0:
            raise BadInputError(f"must be above 0, not {self.lr}", field="lr")
        if self.batch_start > self.batch_size:
            raise BadInputError(f"goes from 0 to batch_size ({self.batch_size})", field="batch_start")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise BadInputError(f"two numbers from 0 to below 1, not {self.betas}", field="betas")
        if (self.keep == "best" or self.patience) and not self.eval_every:
            raise BadInputError("early stopping needs evaluations: set eval_every (--eval-every)", field="keep")
        check_optimiser(self.optimizer, self.parallel)
        check_offload(self.offload_activations, self.gradient_checkpointing)
        check_base_weights(self.base_weights, bool(self.lora or self.freeze_layers), self.parallel)
        check_format_name(self.dtype, FORMATS[:-1])
        if self.dtype == "float16":
            raise BadInputError("float16 would need loss scaling; use bfloat16", field="dtype")

    @property
    def learning_rate(self) -> float:
        """The peak of the schedule."""
        if self.lr is not None:
            return self.lr
        return self.DEFAULT_LORA_LR if self.lora else self.DEFAULT_LR

    @property
    def head_rate(self) -> float:
        """The peak rate of a new head."""
        return self.head_lr or self.learning_rate

    def within(self, longest: int) -> "TrainingConfig":
        """With `max_length` set, for a base that reads up to `longest` tokens."""
        return self if self.max_length is not None else replace(self, max_length=longest)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lr": self.learning_rate}

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> "TrainingConfig":
        """Inverse of `to_dict`. Raises BadInputError for an unknown field."""
        values = dict(payload)
        lora = values.pop("lora", None)
        if isinstance(values.get("betas"), list):
            values["betas"] = tuple(values["betas"])
        try:
            return cls(**values, lora=LoraConfig(**lora) if lora else None)
        except TypeError as error:
            raise BadInputError(f"not a training configuration of this version: {error}") from error

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def identity(self) -> str:
        """The settings that a resumed run cannot change, as JSON."""
        free = ("parallel", "device", "track", "preset")
        return json.dumps({name: value for name, value in self.to_dict().items() if name not in free}, indent=2)


def less_memory(config: TrainingConfig, ranks: int = 1) -> dict[str, dict[str, Any]]:
    """Options by which weights and optimiser take less, least change first, with the settings that they are."""
    quantizes = ranks == 1 and has_bitsandbytes()
    options: dict[str, dict[str, Any]] = {}
    if config.lora is None and config.optimizer == "adamw" and has_bitsandbytes():
        options["--optimizer adamw_8bit"] = {"optimizer": "adamw_8bit"}
    if config.lora is None and config.optimizer != "adamw_offloaded":
        options["--optimizer adamw_offloaded"] = {"optimizer": "adamw_offloaded"}
    adapters: dict[str, Any] = {"lora": config.lora or LoraConfig()}
    if config.lora is None:
        options["--lora 16"] = adapters
    if config.base_weights != "4bit" and quantizes:
        options["--lora 16 --base-weights 4bit" if config.lora is None else "--base-weights 4bit"] = adapters | {
            "base_weights": "4bit"
        }
    return options
