"""Settings of a training run, for every method; command line, run record and model card derive from them.

Leaves out: the methods (`methods/method.py`), the run (`runs/train.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from assay.errors import BadInputError
from assay.models.parallelism.distributed import Parallel

Schedule = Literal["constant", "linear", "cosine", "wsd"]
OptimizerName = Literal["adamw", "adafactor"]
Keep = Literal["last", "best"]
Metric = Literal["nll", "accuracy"]
HeadInit = Literal["zero", "normal"]
SaveDtype = Literal["float32", "bfloat16"]
_CHOICES: dict[str, Any] = {
    "schedule": Schedule,
    "head_init": HeadInit,
    "save_dtype": SaveDtype,
    "optimizer": OptimizerName,
    "parallel": Parallel,
    "keep": Keep,
    "metric": Metric,
}


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters on every linear layer of the backbone; the head is always trained in full."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise BadInputError(f"must be at least 1, not {self.rank}", field="lora")
        if not 0 <= self.dropout < 1:
            raise BadInputError(f"goes from 0 to below 1, not {self.dropout}", field="lora dropout")


@dataclass(frozen=True)
class TrainingConfig:
    """Everything except method and data that determines the trained weights.

    `lr`: None takes DEFAULT_LR or, with LoRA, DEFAULT_LORA_LR. `head_lr`: of a new head; an existing head is trained
    with `lr`. `batch_size`: items (pairs, lists, rows) per optimiser step. `micro_batch_tokens`: positions of one
    forward pass, all sides of its items included; changes time and memory, not the gradient (0: 2048 on a CPU, else
    16384). `max_length`: tokens of one conversation. `dtype`: of the autocast matrix products (auto: bfloat16 where
    it is fast); weights and optimiser are always float32. `freeze_layers`: the embeddings and that many lowest blocks
    are not trained, which saves their backward pass. `share_prefix`: compute the common prefix of an item's sequences
    once, where the model allows. `head_init`: see `trainable_model.py`. `eval_every`, `save_every`: optimiser steps;
    0 = at the end only.

    `min_lr_ratio`: end of a decaying schedule, as a share of the peak; `decay_ratio`: share of the steps in which
    `wsd` decays. `batch_start`: items of the first step, growing to `batch_size` over the first `batch_ramp_ratio` of
    the run's items (0: no growth). `eps` is far below the usual 1e-8: under a head that starts at zero the backbone's
    first gradients are tiny. `gradient_checkpointing`: keep only each layer's input and recompute the rest in the
    backward pass: less memory, a third more work, the same gradients. `parallel`: how several processes divide the
    work (`assay.models.parallelism.strategy`); auto: ddp where there are several. `keep`: end with the last step's
    weights or with those of the best evaluation by `metric` (`early_stopping.py`); `patience`: stop after this many
    evaluations without improvement (0: never). `preset`: the published settings (`presets.py`) that defaults came
    from; recorded only. `update_norm`: measure the norm of each update, which takes a copy of the weights.
    `tensorboard`: write events beside the metrics.
    """

    base: str
    lr: float | None = None
    head_lr: float = 1e-3
    batch_size: int = 16
    micro_batch_tokens: int = 0
    share_prefix: bool = True
    epochs: int = 1
    schedule: Schedule = "cosine"
    warmup_ratio: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_length: int = 1024
    dtype: str = "auto"
    device: str = "auto"
    lora: LoraConfig | None = None
    head_init: HeadInit = "zero"
    freeze_layers: int = 0
    seed: int = 0
    eval_every: int = 0
    save_every: int = 50
    save_dtype: SaveDtype = "float32"
    min_lr_ratio: float = 0.0
    decay_ratio: float = 0.2
    batch_start: int = 0
    batch_ramp_ratio: float = 0.1
    optimizer: OptimizerName = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-10
    gradient_checkpointing: bool = False
    parallel: Parallel = "auto"
    keep: Keep = "last"
    patience: int = 0
    metric: Metric = "nll"
    preset: str | None = None
    update_norm: bool = False
    tensorboard: bool = False

    DEFAULT_LR = 3e-5
    DEFAULT_LORA_LR = 3e-4

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "max_length"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be at least 1, not {getattr(self, name)}", field=name)
        for name in ("micro_batch_tokens", "freeze_layers", "eval_every", "save_every", "weight_decay", "patience"):
            if getattr(self, name) < 0:
                raise BadInputError(f"must not be negative, but is {getattr(self, name)}", field=name)
        if not self.head_lr > 0:
            raise BadInputError(f"must be positive, not {self.head_lr}", field="head_lr")
        if not self.learning_rate > 0:
            raise BadInputError(f"must be positive, not {self.lr}", field="lr")
        if not self.max_grad_norm > 0:
            raise BadInputError(f"must be positive, not {self.max_grad_norm}", field="max_grad_norm")
        for name in ("warmup_ratio", "min_lr_ratio", "decay_ratio", "batch_ramp_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInputError(f"goes from 0 to 1, not {getattr(self, name)}", field=name)
        if not 0 <= self.batch_start <= self.batch_size:
            raise BadInputError(f"goes from 0 to batch_size ({self.batch_size})", field="batch_start")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise BadInputError(f"two numbers from 0 to below 1, not {self.betas}", field="betas")
        if not self.eps > 0:
            raise BadInputError(f"must be positive, not {self.eps}", field="eps")
        if (self.keep == "best" or self.patience) and not self.eval_every:
            raise BadInputError("early stopping needs evaluations: set eval_every (--eval-every)", field="keep")
        if self.optimizer == "adafactor" and self.parallel == "fsdp":
            raise BadInputError("adafactor's state cannot be sharded; use adamw with fsdp", field="optimizer")
        if self.dtype == "float16":
            raise BadInputError("float16 would need loss scaling; use bfloat16", field="dtype")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                raise BadInputError(f"{getattr(self, name)!r} is not one of {', '.join(get_args(choices))}", field=name)

    @property
    def learning_rate(self) -> float:
        """The peak of the schedule."""
        if self.lr is not None:
            return self.lr
        return self.DEFAULT_LORA_LR if self.lora else self.DEFAULT_LR

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lr": self.learning_rate}

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> TrainingConfig:
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
        free = ("parallel", "device", "tensorboard", "preset")
        return json.dumps({name: value for name, value in self.to_dict().items() if name not in free}, indent=2)
