"""Weights that leave a training tensor by tensor are those that peft and transformers write, without a second copy."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from assay.models.published_weights import adapter_weights, merged_weights, write_model
from assay.planning.fake_step import PARAMETERS, TEMPORARY, FakeStep

SIZES: dict[str, Any] = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS, tie_word_embeddings=True, **changes))


def adapted(base: Any) -> Any:
    model: Any = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # else the adapter adds nothing
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def test_merged_weights_are_those_of_the_merged_model() -> None:
    model = adapted(llama())
    before = {name: values.clone() for name, values in model.state_dict().items()}
    ours = dict(merged_weights(model))
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    adapters = dict(adapter_weights(model))
    expected_adapters = get_peft_model_state_dict(model)
    assert adapters.keys() == expected_adapters.keys()
    assert all(torch.equal(values, expected_adapters[name]) for name, values in adapters.items())
    expected = model.merge_and_unload().state_dict()
    assert expected.keys() - ours.keys() == {"lm_head.weight"}  # tied
    assert all(torch.allclose(values, expected[name], atol=1e-7, rtol=0) for name, values in ours.items())


@pytest.mark.parametrize("experts", [False, True], ids=["llama", "experts"])
def test_a_written_model_is_what_transformers_writes(tmp_path: Path, experts: bool) -> None:
    """Experts are one tensor a layer in the model, and one each in its checkpoint."""
    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(**SIZES, **HEADS, num_local_experts=3)) if experts else llama()
    model.save_pretrained(tmp_path / "theirs")
    write_model(model, tmp_path / "ours")
    write_model(model, tmp_path / "shards", shard_bytes=100_000)
    expected = load_file(tmp_path / "theirs/model.safetensors")
    ours = load_file(tmp_path / "ours/model.safetensors")
    assert ours.keys() == expected.keys()
    assert all(torch.equal(values, expected[name]) for name, values in ours.items())
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / "ours" / name).read_text() == (tmp_path / "theirs" / name).read_text()
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 3
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "shards").state_dict()
    assert all(torch.equal(values, reloaded[name]) for name, values in model.state_dict().items())


def test_publishing_holds_a_layer_and_a_shard(tmp_path: Path) -> None:
    model = adapted(llama())
    size = sum(p.nbytes for p in model.parameters())
    layer = sum(p.nbytes for p in model.get_base_model().model.layers[0].parameters())
    with FakeStep() as step:
        step.hold(model.parameters(), PARAMETERS)
        for _ in merged_weights(model):
            pass
    assert step.peak[PARAMETERS] == size
    assert step.peak[TEMPORARY] < 2 * layer < size / 2
    with FakeStep() as step:
        step.hold(model.parameters(), PARAMETERS)
        write_model(model, tmp_path / "m", shard_bytes=layer)
    assert step.peak[TEMPORARY] < 4 * layer < size
