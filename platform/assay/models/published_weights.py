"""The weights of a model in training as other programs read them, tensor by tensor.

Covers: names of the stock checkpoint, adapters added to the weights that they change one layer at a time, a model that
is divided among processes gathered one tensor at a time, writing a checkpoint folder shard by shard. There is no second
copy of the model: at most a layer, and one shard of a file. Leaves out: the tokenizer, checks of what was written.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.models.attention.packing import unwrapped
from assay.models.four_bit import FourBitLinear, dequantize
from assay.models.frozen_weights import halve

SHARD_BYTES = 2**30  #: of one file of a checkpoint, and so of what is in main memory at once
_ADAPTER = "default"
_LAYER = re.compile(r".*?\.\d+\.")
_INDEX = "model.safetensors.index.json"


def full_tensor(tensor: Tensor) -> Tensor:
    """All of a weight of which each process may hold a part; then all processes call this together."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor.detach()


@torch.no_grad()
def merged_weights(model: Any, *, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Name in a stock checkpoint and values of each weight, on the model's device; tied weights once. The model is not
    changed.

    Weights with an adapter come with it added, in float32 (4-bit ones as training dequantizes them); the others are the
    model's own tensors and no copies, unless `dtype` asks for another format. Of a divided model (FSDP2) all processes
    go through this together, and each gets whole tensors. A model whose layers have other shapes than its checkpoint is
    converted layer by layer.
    """
    from transformers.core_model_loading import revert_weight_conversion

    base = unwrapped(model)
    layer: dict[str, Tensor] = {}
    prefix = ""
    for name, values in _merged(base):
        match = _LAYER.match(name)
        if layer and (match is None or match[0] != prefix):
            yield from revert_weight_conversion(base, layer).items()
            layer = {}
        prefix = match[0] if match else ""
        layer[name] = values if dtype is None or not values.is_floating_point() else values.to(dtype)
        del values
    yield from revert_weight_conversion(base, layer).items()


def adapter_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Name in a PEFT adapter's file and values of each weight that the adapter trains (layers trained whole included).
    `model`: as `get_peft_model` returned it. Divided models as in `merged_weights`."""
    for name, values in model.named_parameters():
        if ".lora_" in name or ".modules_to_save." in name:
            yield name.replace(".modules_to_save", "").replace(f".{_ADAPTER}", ""), full_tensor(values)


def write_model(
    model: Any, folder: Path, *, dtype: torch.dtype = torch.float32, main: bool = True, shard_bytes: int = SHARD_BYTES
) -> None:
    """A stock checkpoint (adapters merged) without its tokenizer, neither synced nor checked. Of a divided model all
    processes call this, and the one that is `main` writes. Raises OSError."""
    base = unwrapped(model)
    if main:
        folder.mkdir(parents=True, exist_ok=True)
        base.config.dtype = str(dtype).removeprefix("torch.")
        base.config.architectures = [type(base).__name__.removeprefix("FSDP")]
        base.config.save_pretrained(folder)
        if base.can_generate():
            base.generation_config.save_pretrained(folder)
    shards: list[list[str]] = []
    shard: dict[str, Tensor] = {}
    total = size = 0
    for name, values in merged_weights(model, dtype=dtype):
        if not main:
            continue
        if shard and size + values.nbytes > shard_bytes:
            shards.append(_write_shard(folder, len(shards), shard))
            shard, size = {}, 0
        shard[name] = values.cpu().contiguous()
        size, total = size + values.nbytes, total + values.nbytes
        del values
    if main:
        shards.append(_write_shard(folder, len(shards), shard))
        _name_shards(folder, shards, total)


@torch.no_grad()
def round_weights(model: Any, dtype: torch.dtype) -> None:
    """The model as `write_model` would write it in `dtype`: adapters in the weights that they change, all rounded. Its
    own formats stay, which hold these values; of what was packed in 4 bit it is bfloat16 then. Of a divided model all
    processes call this."""
    for layer in _adapted(unwrapped(model)).values():
        base = layer.get_base_layer()
        packed = isinstance(base, FourBitLinear)
        if packed:
            dequantize(base)
        with _full_adapter(layer):
            product = layer.get_delta_weight(_ADAPTER).float()
        base.weight.copy_(share_of(full_tensor(base.weight).float() + product, base.weight).to(dtype))
        layer.lora_B[_ADAPTER].weight.zero_()
        if packed:
            halve(base)
    for base in [module for module in model.modules() if isinstance(module, FourBitLinear)]:
        dequantize(base)
        halve(base)
    for values in model.state_dict(keep_vars=True).values():
        if values.is_floating_point():
            values.copy_(values.to(dtype))


def unpacked_bytes(model: Any) -> int:
    """What `round_weights` takes beside what there is: of weights in 4 bit, in bfloat16."""
    packed = [layer for layer in model.modules() if isinstance(layer, FourBitLinear)]
    return sum(2 * layer.out_features * layer.in_features - layer.weight.nbytes for layer in packed)


def share_of(full: Tensor, like: Tensor) -> Tensor:
    """`full`, which every process has, laid out as `like` is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor):
        return full
    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


def _merged(base: Any) -> Iterator[tuple[str, Tensor]]:
    """`merged_weights` in the names and shapes of the model's own modules."""
    state: dict[str, Tensor] = base.state_dict(keep_vars=True)
    adapted = _adapted(base)
    packed = {f"{name}.weight": layer for name, layer in base.named_modules() if isinstance(layer, FourBitLinear)}
    shared = Counter(map(id, state.values()))
    tied, unsaved = getattr(base, "all_tied_weights_keys", None) or {}, base._keys_to_ignore_on_save or ()
    for stored, values in state.items():
        layer, _, parameter = stored.partition(".base_layer.")
        name = f"{layer}.{parameter}" if parameter else stored.replace(f".modules_to_save.{_ADAPTER}", "")
        of_adapter = not parameter and any(stored.startswith(f"{inside}.") for inside in adapted)
        if of_adapter or ".original_module." in stored or name in unsaved:
            continue
        if stored in packed:
            values = packed[stored].dequantized(torch.float32)
        if parameter == "weight":
            with _full_adapter(adapted[layer]):
                product = adapted[layer].get_delta_weight(_ADAPTER).float()
            yield name, full_tensor(values).float() + product
            del product
        elif not (name in tied and shared[id(values)] > 1):
            yield name, full_tensor(values)


def _adapted(base: Any) -> dict[str, Any]:
    """Layers with adapters, by name. Without peft, whose import takes seconds, there are none."""
    peft = sys.modules.get("peft.tuners.lora")
    return {name: part for name, part in base.named_modules() if peft is not None and isinstance(part, peft.LoraLayer)}


@contextmanager
def _full_adapter(layer: Any) -> Iterator[None]:
    """Every process has the layer's whole adapter: its product is then, bit for bit, what one process computes."""
    from torch.distributed.tensor import DTensor

    parts = [part for name, part in layer.named_modules() if name and not name.startswith("base_layer")]
    shares = [(p._parameters, name, value) for p in parts for name, value in p._parameters.items()]
    shares = [each for each in shares if isinstance(each[2], DTensor)]
    for holder, name, value in shares:
        holder[name] = torch.nn.Parameter(full_tensor(value), requires_grad=False)
    try:
        yield
    finally:
        for holder, name, value in shares:
            holder[name] = value


def _write_shard(folder: Path, number: int, shard: dict[str, Tensor]) -> list[str]:
    from safetensors.torch import save_file

    save_file(shard, folder / f"model-{number + 1:05d}.part", metadata={"format": "pt"})
    return list(shard)


def _name_shards(folder: Path, shards: list[list[str]], total: int) -> None:
    files = [f"model-{n + 1:05d}-of-{len(shards):05d}.safetensors" for n in range(len(shards))]
    if len(files) == 1:
        files = ["model.safetensors"]
    else:
        places = {name: file for file, names in zip(files, shards, strict=True) for name in names}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / _INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for number, file in enumerate(files):
        (folder / f"model-{number + 1:05d}.part").rename(folder / file)
