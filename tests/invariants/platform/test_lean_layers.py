"""Layers that hold less for the backward pass: the same forward pass to the bit, the same gradients, a smaller hold."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from assay.models.attention.lean_layers import LeanMLP, LeanRMSNorm, make_lean

KINDS = ["llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "olmo2"]
IDS = torch.arange(48).view(2, 24) % 40


def network(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = AutoModel.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.for_model(kind, vocab_size=40, num_key_value_heads=1, head_dim=16, pad_token_id=0, **sizes)
    ).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def passed(model: Any, *, low: bool) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Hidden states, gradients and the bytes that the graph holds beside the weights."""
    model.zero_grad()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held: dict[int, int] = {}

    def hold(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=low):
        states = model(input_ids=IDS, use_cache=False).last_hidden_state
    (states.float() * torch.linspace(-1, 1, 32)).sum().backward()
    return states, torch.cat([p.grad.float().flatten() for p in model.parameters()]), sum(held.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["float32", "autocast", "bfloat16"])
def test_the_same_forward_pass_and_gradient(kind: str, how: str) -> None:
    model = network(kind, torch.bfloat16 if how == "bfloat16" else torch.float32)
    states, gradient, before = passed(model, low=how == "autocast")
    make_lean(model)
    lean_states, lean_gradient, after = passed(model, low=how == "autocast")
    assert torch.equal(lean_states, states)
    error = (lean_gradient - gradient).norm() / gradient.norm()
    assert error < (2e-6 if how == "float32" else 0.02)
    if any(isinstance(module, LeanRMSNorm) for module in model.modules()):
        assert after < before


def test_which_layers_are_changed() -> None:
    for kind in KINDS:
        model = network(kind)
        make_lean(model)
        norms, mlps = (sum(isinstance(m, c) for m in model.modules()) for c in (LeanRMSNorm, LeanMLP))
        assert (norms, mlps) == {"phi3": (4, 0), "gemma": (0, 0), "olmo2": (0, 0)}.get(kind, (4, 2)), kind


def test_a_third_less_is_held() -> None:
    model = network("llama")
    before = passed(model, low=True)[2]
    make_lean(model)
    assert passed(model, low=True)[2] < 0.75 * before


def test_frozen_norms_get_no_gradient() -> None:
    model = network("llama")
    make_lean(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    model(input_ids=IDS, use_cache=False).last_hidden_state.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == [
        f"layers.{n}.self_attn.q_proj.weight" for n in range(2)
    ]
