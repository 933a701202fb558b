"""How a training runs, whatever is trained: the command line, the run record and the model card derive from it.

Leaves out: what is trained (`methods.py`), the workspace's side (`training_run.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from assay.errors import BadInputError

Schedule = Literal["constant", "linear", "cosine"]
HeadInit = Literal["zero", "normal"]
SaveDtype = Literal["float32", "bfloat16"]


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
    """All that decides a training run's weights, beside the method and the data.

    `lr`: None takes DEFAULT_LR or, with LoRA, DEFAULT_LORA_LR. `head_lr`: of a new head, which starts at zero and has
    far to go; a head that was there is trained with `lr`. `batch_size`: items (pairs, lists, rows) an optimiser step.
    `micro_batch_tokens`: positions of one forward pass, all sides of its items included; changes time and memory,
    not the gradient (0: 1024 on a CPU, where little padding counts most, else 16384). `max_length`: tokens of one
    conversation. `dtype`: of the autocast matrix products (auto: bfloat16 where it is fast); weights and optimiser
    are always float32.
    `freeze_layers`: the embeddings and that many blocks from below stay as they are, which saves their backward
    pass. `share_prefix`: compute what an item's sequences begin with once, where the model allows.
    `head_init`: see `base_model.py`. `eval_every`, `save_every`: optimiser steps; 0 = at the end only.
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

    DEFAULT_LR = 3e-5
    DEFAULT_LORA_LR = 3e-4

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "max_length"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be at least 1, not {getattr(self, name)}", field=name)
        for name in ("micro_batch_tokens", "freeze_layers", "eval_every", "save_every", "weight_decay"):
            if getattr(self, name) < 0:
                raise BadInputError(f"must not be negative, but is {getattr(self, name)}", field=name)
        if not self.head_lr > 0:
            raise BadInputError(f"must be positive, not {self.head_lr}", field="head_lr")
        if not self.learning_rate > 0:
            raise BadInputError(f"must be positive, not {self.lr}", field="lr")
        if not self.max_grad_norm > 0:
            raise BadInputError(f"must be positive, not {self.max_grad_norm}", field="max_grad_norm")
        if not 0 <= self.warmup_ratio <= 1:
            raise BadInputError(f"goes from 0 to 1, not {self.warmup_ratio}", field="warmup_ratio")
        if self.dtype == "float16":
            raise BadInputError("float16 would need loss scaling; use bfloat16", field="dtype")
        for name, known in (("schedule", Schedule), ("head_init", HeadInit), ("save_dtype", SaveDtype)):
            if getattr(self, name) not in get_args(known):
                raise BadInputError(f"{getattr(self, name)!r} is not one of {', '.join(get_args(known))}", field=name)

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
        """Inverse of `to_dict`. Raises BadInputError for what this version does not know."""
        values = dict(payload)
        lora = values.pop("lora", None)
        try:
            return cls(**values, lora=LoraConfig(**lora) if lora else None)
        except TypeError as error:
            raise BadInputError(f"not a training configuration of this version: {error}") from error

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"
