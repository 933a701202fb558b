"""Opening an encoder by the name that `--encoder` takes: of the registry, `hashing-DIMENSION`, a folder or hub name."""

from pathlib import Path

from assay.errors import BadInputError
from assay.registry import settings_of
from assay_pipelines.embedding import hashing
from assay_pipelines.embedding.encoder import ENCODERS, Encoder


def open_encoder(name: str = "minilm", device: str = "auto", *, folder: Path | None = None) -> Encoder:
    """`folder`: of the configuration that names the encoder, for `file.py:Name`.

    Raises NotFoundError or BackendError, in one line that says what to install, where it cannot be had.
    """
    if not name.strip():
        raise BadInputError(f"name an encoder: {ENCODERS.help()}, or a sentence-transformers model")
    encoder: Encoder
    family, _, dimension = name.partition("-")
    if family == hashing.NAME and dimension.isdigit():
        encoder = hashing.HashingEncoder(int(dimension))
    elif name in ENCODERS.names() or ":" in name:
        takes_device = any(setting.name == "device" for setting in settings_of(ENCODERS.find(name, folder=folder)))
        encoder = ENCODERS.create(name, {"device": device} if takes_device else {}, folder=folder)
    else:
        from assay_pipelines.embedding.sentence_encoder import SentenceEncoder

        encoder = SentenceEncoder(name, device=device)
    return encoder
