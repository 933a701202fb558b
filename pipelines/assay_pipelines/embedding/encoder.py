"""What turns texts into vectors: the `Encoder` protocol and the registry of encoders.

Leaves out: opening one by name (`encoder_loader`), the encoders, the stored vectors, the search.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from assay.registry import Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Encoder(Protocol):
    """`name`: names the model and its version; vectors of different names are never compared."""

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...

    def encode(self, texts: Sequence[str]) -> "npt.NDArray[np.float32]":
        """[n, dimension], each row of length 1."""


#: Factories; one with a parameter `device` gets the device.
ENCODERS: Kind[Callable[..., Encoder]] = Kind(
    "encoder",
    "Turns texts into vectors for retrieval and for comparing principles.",
    {
        "minilm": "assay_pipelines.embedding.mean_pooling:minilm",
        "hashing": "assay_pipelines.embedding.hashing:HashingEncoder",
    },
    makes=("name", "dimension", "encode"),
    option="--encoder",
)
