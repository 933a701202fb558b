"""Small random checkpoints in forms that other projects publish: config.json and safetensors with their names.

The network is a two-layer Llama with random weights; names and shapes of the tensors are those of the publishers' code,
which each test names. Leaves out: the publishers' scoring, which the tests hold as references.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from assay.models.loading import load_tokenizer, resolve_model

H = 64  #: hidden size of the tiny model
Tensors = dict[str, torch.Tensor]


def rand(*shape: int, seed: int = 0, scale: float = 0.3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def tiny_state() -> Tensors:
    """The tiny model's tensors under their stock names, with weights large enough that texts differ."""
    state = load_file(Path(resolve_model("tiny")) / "model.safetensors")
    return {n: t if "norm" in n else rand(*t.shape, seed=k, scale=0.2) for k, (n, t) in enumerate(state.items())}


def write(
    folder: Path,
    tensors: Tensors,
    *,
    architecture: str,
    config: Mapping[str, Any] | None = None,
    tokens: Callable[[Any], None] | None = None,
    drop: tuple[str, ...] = (),
) -> Path:
    """A checkpoint folder: the tiny model's config with changes, its tokenizer (changed by `tokens`), the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer("tiny")
    if tokens is not None:
        tokens(tokenizer)
    tokenizer.save_pretrained(folder)
    described = json.loads((Path(resolve_model("tiny")) / "config.json").read_text())
    described |= {"architectures": [architecture], "vocab_size": len(tokenizer), "tie_word_embeddings": False}
    for name in drop:
        described.pop(name)
    (folder / "config.json").write_text(json.dumps(described | dict(config or {})))
    grown = dict(tensors)
    for name in ("model.embed_tokens.weight", "model.tok_embeddings.weight", "lm_head.weight"):
        if name in grown and grown[name].shape[0] < len(tokenizer):
            more = rand(len(tokenizer) - grown[name].shape[0], grown[name].shape[1], seed=9, scale=0.2)
            grown[name] = torch.cat([grown[name], more])
    save_file({n: t.contiguous() for n, t in grown.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def reference_states(folder: Path, ids: list[int], rename: Callable[[str], str | None] = lambda n: n) -> torch.Tensor:
    """Hidden states [L, H] of transformers' own LlamaModel (Gemma2Model where the configuration says so) with the
    checkpoint's tensors, loaded by PyTorch alone."""
    from transformers import AutoConfig, AutoModel

    config = json.loads((folder / "config.json").read_text())
    keep = {k: v for k, v in config.items() if k not in ("architectures", "auto_map", "model_type")}
    kind = "gemma2" if config["model_type"] == "gemma2" else "llama"
    auto: Any = AutoModel
    model = auto.from_config(AutoConfig.for_model(kind, **keep), attn_implementation="eager")
    model.eval()
    tensors = load_file(folder / "model.safetensors")
    state = {new: t for n, t in tensors.items() if (new := rename(n)) is not None and new.startswith("model.")}
    model.load_state_dict({n.removeprefix("model."): t for n, t in state.items()})
    with torch.no_grad():
        return torch.as_tensor(model(input_ids=torch.tensor([ids])).last_hidden_state[0])
