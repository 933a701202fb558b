"""A published checkpoint's files as they lie: configuration, names and shapes of its tensors, the tensors on demand.

Covers: safetensors (a file that was cut short is refused before anything is loaded), `.bin` by torch's weights-only
reader, PEFT adapters with their base, models of a hub. Leaves out: what form it is (`adapter`). No code that a
checkpoint brings along is run.
"""

import json
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

from assay.errors import BadInputError, NotFoundError
from assay.models.hub import cached_alone
from assay.models.loading import resolve_model
from assay.models.safe_files import pickle_error

if TYPE_CHECKING:
    import torch

CONFIG, PEFT_CONFIG, PEFT_WEIGHTS = "config.json", "adapter_config.json", "adapter_model.safetensors"
INDEX = "model.safetensors.index.json"
_DESCRIPTIONS = ("*.json", "*.jinja", "*.model", "*.txt")


@dataclass(frozen=True)
class PublishedCheckpoint:
    """`name`: as it was asked for. `config`: config.json, or a PEFT adapter's base's. `base`: of a PEFT adapter."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    files: tuple[Path, ...]
    base: "PublishedCheckpoint | None" = field(default=None, repr=False)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every tensor. Raises BadInputError for a file that is cut short or no weights."""
        shapes: dict[str, tuple[int, ...]] = {}
        if not self.files and (index := self.folder / INDEX).is_file():  # names alone
            return dict.fromkeys(_json(index).get("weight_map") or (), ())
        for path in self.files:
            if path.suffix == ".safetensors":
                shapes |= {name: tuple(about["shape"]) for name, about in safetensors_header(path).items()}
        return shapes | {name: tuple(tensor.shape) for name, tensor in self._pickled.items()}

    def tensor(self, name: str) -> "torch.Tensor":
        """The tensor of that name, which `shapes` lists."""
        if name in self._pickled:
            return self._pickled[name]
        from safetensors import safe_open

        path = self._places[name]
        with safe_open(path, framework="pt") as opened:
            tensor: torch.Tensor = opened.get_tensor(name)
        return tensor

    @property
    def classes(self) -> frozenset[str]:
        """Names of the classes that its configuration says it is of, code of its own included."""
        code = (str(name).rpartition(".")[2] for name in (self.config.get("auto_map") or {}).values())
        return frozenset((*(self.config.get("architectures") or ()), *code))

    @cached_property
    def _places(self) -> dict[str, Path]:
        return {name: path for path in self.files if path.suffix == ".safetensors" for name in safetensors_header(path)}

    @cached_property
    def _pickled(self) -> "dict[str, torch.Tensor]":
        import torch

        tensors: dict[str, torch.Tensor] = {}
        for path in self.files:
            if path.suffix == ".bin":
                try:
                    mapped = is_zipfile(path)  # tensors are read when they are used; older files are read whole
                    state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
                except (pickle.UnpicklingError, struct.error, RuntimeError, LookupError, EOFError, ValueError) as error:
                    raise pickle_error(path.name, path.parent) from error
                if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
                    raise pickle_error(path.name, path.parent)
                tensors |= state
        return tensors


def open_checkpoint(name: str, *, weights: bool = True) -> PublishedCheckpoint:
    """The files of a folder or a hub id; `weights=False`: without fetching a hub's weights, whose names an index has.

    Raises NotFoundError, and BadInputError for what cannot be read safely."""
    folder = Path(resolve_model(name))
    if not folder.is_dir():
        folder = _of_hub(name, weights=weights)
    if not (folder / CONFIG).is_file():
        return _peft(name, folder)
    config = _json(folder / CONFIG)
    files = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    if not files:
        files = sorted(folder.glob("pytorch_model*.bin"))
    return PublishedCheckpoint(name, folder, config, tuple(files))


def safetensors_header(path: Path) -> dict[str, Any]:
    """Tensor name -> its entry in the file's header. Raises BadInputError where the file does not hold all of them."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= min(size, 100_000_000):
                raise ValueError("no header")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError("is no safetensors file, or its beginning is lost", file=path) from error
    if size < end:
        raise BadInputError(f"was cut short: {size} of {end} bytes are there; copy or download it again", file=path)
    return dict(header)


def _json(path: Path) -> dict[str, Any]:
    try:
        payload = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInputError(f"is no JSON: {error}", file=path) from error
    if not isinstance(payload, dict):
        raise BadInputError("is no JSON object", file=path)
    return payload


def _peft(name: str, folder: Path) -> PublishedCheckpoint:
    settings = _json(folder / PEFT_CONFIG)
    if not (folder / PEFT_WEIGHTS).is_file():
        pickled = (folder / "adapter_model.bin").is_file()
        raise pickle_error("adapter_model.bin", folder) if pickled else NotFoundError(f"{folder} has no {PEFT_WEIGHTS}")
    base = str(settings.get("base_model_name_or_path") or "")
    try:
        below = open_checkpoint(base)
    except NotFoundError as error:
        raise NotFoundError(f"{name} is a PEFT adapter on {base!r}, and that is not here: {error}") from error
    return PublishedCheckpoint(name, folder, below.config, (folder / PEFT_WEIGHTS,), below)


def _of_hub(name: str, *, weights: bool) -> Path:
    """The folder in the hub's cache, with descriptions and `weights`; pickles only where there is nothing else."""
    from huggingface_hub import is_offline_mode, snapshot_download

    if (alone := cached_alone(name)) is not None:
        return Path(alone)
    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_DESCRIPTIONS)))
        if not weights:
            return folder
        snapshot_download(name, allow_patterns=["*.safetensors"])
        if not any(folder.glob("*.safetensors")):
            snapshot_download(name, allow_patterns=["pytorch_model*.bin"])
    except (OSError, ValueError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if is_offline_mode() else ""
        line = str(error).strip().splitlines()[0]
        raise NotFoundError(f"cannot get {name} from the model hub{offline}: {line}") from error
    return folder
