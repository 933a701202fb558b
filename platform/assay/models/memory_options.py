"""Choices by which a training takes less of a GPU's memory, as recipes and command lines name them.

Covers: names, what they do not go with, the library that some need. Leaves out: what they do (`optimisers`,
`frozen_weights`, `checkpointing`). Imports nothing heavy.
"""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from assay.errors import BackendError, BadInputError

# It warns of kernels that are not used here, and peft imports it too.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

OptimizerName = Literal["adamw", "adamw_8bit", "adamw_offloaded", "adafactor"]
BaseWeights = Literal["auto", "float32", "bfloat16", "4bit"]
#: Bytes on the device of the optimiser's state for one trained number.
MOMENT_BYTES: dict[OptimizerName, int] = {"adamw": 8, "adamw_8bit": 2, "adamw_offloaded": 0, "adafactor": 0}
INSTALL = "pip install bitsandbytes"


def check_optimiser(name: OptimizerName, parallel: str, field: str = "optimizer") -> None:
    """Raises BadInputError where its state cannot be divided as `parallel` says, or its library is missing."""
    if name == "adafactor" and parallel == "fsdp":
        raise BadInputError("adafactor's state cannot be sharded; use another optimiser with fsdp", field=field)
    if name == "adamw_8bit":
        require_bitsandbytes(field)


def check_base_weights(weights: BaseWeights, frozen: bool, parallel: str, field: str = "base_weights") -> None:
    """`frozen`: whether there are frozen weights. Raises BadInputError where there are none to keep so, where 4 bit
    would be divided among processes, or where its library is missing."""
    if weights == "auto":
        return
    if not frozen:
        raise BadInputError(f"{weights} is for frozen weights, and all are trained: give adapters a rank", field=field)
    if weights == "4bit":
        if parallel == "fsdp":
            raise BadInputError("4-bit weights cannot be sharded; choose ddp, or bfloat16", field=field)
        require_bitsandbytes(field)


def check_offload(offload: bool, checkpointing: bool, field: str = "offload_activations") -> None:
    if offload and not checkpointing:
        raise BadInputError("what checkpointing keeps is offloaded: also set gradient_checkpointing", field=field)


def has_bitsandbytes() -> bool:
    return find_spec("bitsandbytes") is not None


def require_bitsandbytes(field: str) -> Any:
    """Its module. Raises BadInputError where it is not installed, BackendError where it does not work here."""
    if not has_bitsandbytes():
        raise BadInputError(f"8-bit moments and 4-bit weights need bitsandbytes: {INSTALL}", field=field)
    try:
        return import_module("bitsandbytes")
    except Exception as error:  # of its native library, in any form
        raise BackendError(f"bitsandbytes does not load: {' '.join(str(error).split())[:200]}; {INSTALL}") from error
