"""Any model of the sentence-transformers library, by hub name or folder, without query and passage prompts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BackendError, NotFoundError
from assay.models.devices import pick_device
from assay.models.quiet import quiet_transformers
from assay.runs.record import folder_digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BATCH = 64


class SentenceEncoder:
    """A `SentenceTransformer` whose rows are scaled to length 1."""

    def __init__(self, model: str, *, device: str = "auto") -> None:
        """Raises BackendError without the library, NotFoundError for a model that cannot be loaded."""
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise BackendError(
                f"the encoder {model!r} needs sentence-transformers: pip install 'assay[embed]' ({error})"
            ) from error
        folder = Path(model).expanduser()
        try:
            with quiet_transformers():
                self._model = SentenceTransformer(
                    str(folder) if folder.is_dir() else model, device=str(pick_device(device))
                )
        except (OSError, ValueError, RuntimeError) as error:
            raise NotFoundError(f"cannot load the encoder {model!r}: {str(error).strip().splitlines()[0]}") from error
        if folder.is_dir():
            self.name = f"{folder.resolve().name}@{folder_digest(folder)[:16]}"
        else:
            commit = getattr(getattr(self._model[0], "auto_model", None), "config", None)
            self.name = f"{model}@{(getattr(commit, '_commit_hash', None) or 'unknown')[:16]}"
        self.dimension = int(self._model.get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str]) -> "npt.NDArray[np.float32]":
        """[n, dimension], each row of length 1."""
        import numpy as np

        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        rows = self._model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(rows, dtype=np.float32)
