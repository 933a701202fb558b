"""The short pass of a decoder gives the hidden states of transformers' pass, and is taken only where it may be."""

import pytest
import torch
from test_packing import build

from assay.models.attention.decoder_pass import DecoderPass
from assay.models.attention.packing import backbone, forward, forward_rows, group_of, packed_pass

GROUPS = [group_of([[5, 6, 7, 8], [5, 6, 9, 10, 11]]), group_of([[12, 13, 14]]), group_of([list(range(3, 60))])]


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2"])
def test_states_are_those_of_transformers_pass(kind: str) -> None:
    model = build(kind)
    with torch.inference_mode():
        packed, padded = forward(model, GROUPS), forward_rows(model, GROUPS)
        DecoderPass.attach(backbone(model))
        assert packed_pass(backbone(model)) is not None
        for groups in (GROUPS, GROUPS[2:]):
            expected = forward_rows(model, groups).last()
            assert torch.allclose(forward(model, groups).last(), expected, atol=2e-6)
        states = forward(model, GROUPS)
    assert torch.allclose(states.states, packed.states, atol=1e-6)
    assert torch.allclose(states.last(), padded.last(), atol=2e-6)


def test_gradients_and_autocast_take_transformers_pass() -> None:
    model = build("llama")
    DecoderPass.attach(backbone(model))
    assert packed_pass(backbone(model)) is None
    assert forward(model, GROUPS).states.requires_grad
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert packed_pass(backbone(model)) is None


@pytest.mark.parametrize("kind", ["gemma", "qwen3", "phi3"])
def test_other_decoders_have_none(kind: str) -> None:
    model = build(kind)
    DecoderPass.attach(backbone(model))
    with torch.inference_mode():
        assert packed_pass(backbone(model)) is None


def test_a_network_that_does_not_agree_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama")
    monkeypatch.setattr("assay.models.attention.decoder_pass._rotated", lambda heads, cos, sin: heads)
    DecoderPass.attach(backbone(model))
    with torch.inference_mode():
        assert packed_pass(backbone(model)) is None
