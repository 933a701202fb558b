"""A deterministic encoder without a model: hashed words and word pairs.

For tests and for a first try without a download: texts that share words are near. It is not an embedding model.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from assay.errors import BadInputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NAME = "hashing"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class HashingEncoder:
    """Each word and each pair of neighbours adds +1 or -1 to a dimension by its hash (the signed hashing trick,
    Weinberger et al. 2009); rows are scaled to length 1. A text without words becomes the first axis."""

    dimension: int = 256

    def __post_init__(self) -> None:
        if self.dimension < 2:
            raise BadInputError("must be 2 or more", field="dimension")

    @property
    def name(self) -> str:
        return f"{NAME}-{self.dimension}@1"

    def encode(self, texts: Sequence[str]) -> "npt.NDArray[np.float32]":
        """[n, dimension], each row of length 1."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            words = _WORD.findall(text.casefold())
            for token in [*words, *(f"{a} {b}" for a, b in pairwise(words))]:
                number = int.from_bytes(
                    hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=8).digest(), "big"
                )
                row[(number >> 1) % self.dimension] += 1.0 if number & 1 else -1.0
            length = float(np.linalg.norm(row))
            if length:
                row /= length
            else:
                row[:] = 0.0
                row[0] = 1.0
        return rows
