"""One name, one encoder: what `--encoder` takes everywhere.

Covers: `hashing` and `hashing-DIMENSION` (no model, for tests), `minilm` (carried by a PyPI package, works offline),
any sentence-transformers model by folder or hub name. Leaves out: the encoders (beside this module).
"""

from __future__ import annotations

from assay.errors import BadInputError
from assay_pipelines.embedding import hashing, mean_pooling
from assay_pipelines.embedding.encoder import Encoder

DEFAULT = mean_pooling.MINILM


def open_encoder(name: str = DEFAULT, device: str = "auto") -> Encoder:
    """Raises NotFoundError or BackendError, in one line that says what to install, where it cannot be had."""
    if not name.strip():
        raise BadInputError("name an encoder: minilm, hashing, or a sentence-transformers model")
    if name == hashing.NAME:
        return hashing.HashingEncoder()
    kind, _, size = name.partition("-")
    if kind == hashing.NAME and size.isdigit():
        return hashing.HashingEncoder(int(size))
    if name == mean_pooling.MINILM:
        return mean_pooling.MeanPoolingEncoder(mean_pooling.minilm_folder(), name=name, device=device)
    from assay_pipelines.embedding.sentence_encoder import SentenceEncoder

    return SentenceEncoder(name, device=device)
