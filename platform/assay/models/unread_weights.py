"""Models whose weights are read when they are divided, a layer at a time: no process ever holds the whole.

Covers: building a model with placeholders, which tensor of a checkpoint each weight is, reading those of a module.
Adapters, new heads and buffers that no checkpoint has (rotary frequencies) are there at once, drawn as otherwise.
Leaves out: dividing (`parallelism.strategy`), checkpoints whose tensors have other shapes than the model's (experts
kept one by one) and names of the hub that are not in its cache: those are loaded whole.

A placeholder has its weight's shape and format, takes no memory and is NaN, so that a use before it is read is seen.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_INDEX, _ALONE = "model.safetensors.index.json", "model.safetensors"
_SOURCE = "assay_source"  #: attribute of a placeholder
_active: list[bool] = []


@dataclass(frozen=True)
class WeightSource:
    """`number_format`: as safetensors names it, such as BF16."""

    file: Path
    key: str
    shape: tuple[int, ...]
    number_format: str


@contextmanager
def reading_later(*, active: bool = True) -> Iterator[None]:
    """Models that are loaded until the end of the block have placeholders, for `read_weights`."""
    _active.append(active)
    try:
        yield
    finally:
        _active.pop()


def reads_later() -> bool:
    return bool(_active) and _active[-1]


def source_of(weight: Tensor) -> WeightSource | None:
    """Where the values of a placeholder are; None for any other weight."""
    return getattr(weight, _SOURCE, None)


def set_format(weight: Tensor, dtype: torch.dtype) -> None:
    """In place, also of a placeholder."""
    unread = source_of(weight) is not None
    weight.data = _placeholder(weight, dtype) if unread else weight.data.to(dtype)


def build(
    kind: Any, source: str, config: Any, dtype: torch.dtype, num_labels: int | None = None
) -> tuple[Any, dict[str, Any]] | None:
    """A model of the class (or auto class) `kind`, as from_pretrained gives it with `output_loading_info`, with
    placeholders for the weights of the checkpoint `source`. None where those cannot be read one by one."""
    from transformers import GenerationConfig
    from transformers.initialization import no_init_weights

    files = _files(source)
    if files is None:
        return None
    if num_labels is not None:
        config.num_labels = num_labels
    make = getattr(kind, "from_config", None) or kind._from_config
    with no_init_weights(), _placeholders():
        model = make(config, dtype=dtype)
    model.tie_weights()
    stored = _stored(files)
    sources: dict[str, WeightSource] = {}
    missing = []
    for name, weight in [*model.named_parameters(), *_saved_buffers(model)]:
        keys = _keys(model, name, weight)
        if keys is None:
            return None
        key = next((key for key in keys if key in stored), None)
        if key is None:
            missing.append(name)
        elif stored[key].shape != tuple(weight.shape):
            return None
        else:
            sources[name] = stored[key]
            if isinstance(weight, nn.Parameter):
                setattr(weight, _SOURCE, stored[key])
            else:
                weight.copy_(_values(stored[key], weight.dtype))
    _initialise(model, missing)
    if model.can_generate() and (Path(source) / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(source)
    used = {each.key for each in sources.values()}
    ignored = model._keys_to_ignore_on_load_missing or ()
    info = {"missing_keys": [n for n in missing if n not in ignored], "unexpected_keys": [*(stored.keys() - used)]}
    return model.eval(), info


def read_weights(*modules: nn.Module) -> None:
    """Read all that the modules have placeholders for; weights that they share stay shared. Weights are new objects."""
    read: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
    for part in (part for module in modules for part in module.modules()):
        for name, weight in part._parameters.items():
            if weight is None or (source := source_of(weight)) is None:
                continue
            if id(weight) not in read:
                values = nn.Parameter(_values(source, weight.dtype), requires_grad=weight.requires_grad)
                read[id(weight)] = weight, values
            part._parameters[name] = read[id(weight)][1]


def _values(source: WeightSource, dtype: torch.dtype) -> Tensor:
    from safetensors import safe_open

    with safe_open(source.file, framework="pt") as file:
        values: Tensor = file.get_tensor(source.key)
    return values.to(dtype)


def _placeholder(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.full((1,), torch.nan, dtype=dtype).expand(weight.shape)


@contextmanager
def _placeholders() -> Iterator[None]:
    """Every parameter that a module gets is a placeholder at once: memory that nothing is written to takes none."""
    register = nn.Module.register_parameter

    def register_placeholder(module: nn.Module, name: str, weight: nn.Parameter | None) -> None:
        if weight is not None:
            weight = nn.Parameter(_placeholder(weight, weight.dtype), requires_grad=weight.requires_grad)
        register(module, name, weight)

    nn.Module.register_parameter = register_placeholder  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def _files(source: str) -> list[Path] | None:
    folder = Path(source)
    if (folder / _INDEX).is_file():
        names = set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        return [folder / name for name in sorted(names)]
    return [folder / _ALONE] if (folder / _ALONE).is_file() else None


def _stored(files: list[Path]) -> dict[str, WeightSource]:
    from safetensors import safe_open

    stored = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118  # no mapping
                part = file.get_slice(key)
                stored[key] = WeightSource(path, key, tuple(part.get_shape()), part.get_dtype())
    return stored


def _saved_buffers(model: Any) -> list[tuple[str, Tensor]]:
    saved = model.state_dict()
    return [(name, buffer) for name, buffer in model.named_buffers() if name in saved]


def _keys(model: Any, name: str, weight: Tensor) -> list[str] | None:
    """What a checkpoint may call a weight, likeliest first. None where it holds it in another shape."""
    from transformers.core_model_loading import revert_weight_conversion

    tied = getattr(model, "all_tied_weights_keys", None) or {}
    names = [name, *(alias for alias, original in tied.items() if original == name)]
    keys = []
    for each in names:
        [(key, values), *more] = revert_weight_conversion(model, {each: weight}).items()
        if more or values is not weight:
            return None
        prefix = f"{model.base_model_prefix}."
        keys += [key, key.removeprefix(prefix), prefix + key]
    return keys


def _initialise(model: Any, missing: list[str]) -> None:
    """What no checkpoint has, as from_pretrained draws it."""
    modules: list[nn.Module] = []
    for name in missing:
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if (weight := module._parameters.get(leaf)) is not None:
            fresh = torch.zeros(weight.shape, dtype=weight.dtype)
            module._parameters[leaf] = nn.Parameter(fresh, requires_grad=weight.requires_grad)
        modules += [] if any(module is each for each in modules) else [module]
    for module in modules:
        model._init_weights(module)
