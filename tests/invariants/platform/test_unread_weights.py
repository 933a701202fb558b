"""A model whose weights are read later is the one that is read at once, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, MixtralConfig, MixtralForCausalLM

from assay.errors import BadInputError
from assay.models.loading import load_causal_lm, load_scalar_model, load_tokenizer
from assay.models.published_weights import write_model
from assay.models.unread_weights import read_weights, reading_later, source_of
from assay_policy_training.core.policy import Lora, Policy
from assay_rm_training.model.trainable_model import load_trainable
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tied in shards, untied, bfloat16, without a language head, with experts."""
    folder, tokenizer = tmp_path_factory.mktemp("models"), load_tokenizer("tiny")
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, **HEADS, vocab_size=len(tokenizer), tie_word_embeddings=True)
    untied = LlamaConfig(**SIZES, **HEADS, vocab_size=len(tokenizer), tie_word_embeddings=False)
    write_model(LlamaForCausalLM(config), folder / "tied", shard_bytes=20_000)
    LlamaForCausalLM(untied).save_pretrained(folder / "untied")
    LlamaForCausalLM(untied).bfloat16().save_pretrained(folder / "bfloat16")
    LlamaModel(config).save_pretrained(folder / "body")
    experts = MixtralConfig(**SIZES, **HEADS, vocab_size=len(tokenizer), num_local_experts=2)
    MixtralForCausalLM(experts).save_pretrained(folder / "experts")
    for each in folder.iterdir():
        tokenizer.save_pretrained(each)
    return folder


def same(later: Any, at_once: Any) -> None:
    found, expected = (dict(model.named_parameters()) for model in (later, at_once))
    assert found.keys() == expected.keys()
    assert not [name for name, weight in found.items() if source_of(weight) is not None]
    assert not [name for name, weight in found.items() if not torch.equal(weight, expected[name])]
    assert all(found[name].requires_grad == weight.requires_grad for name, weight in expected.items())
    found, expected = (dict(model.named_buffers()) for model in (later, at_once))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], buffer) for name, buffer in expected.items())


@pytest.mark.parametrize("name", ["tied", "untied", "bfloat16", "body"])
@pytest.mark.parametrize("scalar", [False, True], ids=["language", "scalar"])
def test_read_later_is_read_at_once(folders: Path, name: str, scalar: bool) -> None:
    tokenizer = load_tokenizer(str(folders / name))

    def load() -> Any:
        options: dict[str, Any] = {"dtype": torch.float32, "device": CPU}
        if scalar:
            return load_scalar_model(str(folders / name), tokenizer, **options, new_head=True, seed=5)
        return load_causal_lm(str(folders / name), tokenizer, **options)

    at_once = load()
    with reading_later():
        later = load()
    unread = [weight for weight in later.parameters() if source_of(weight) is not None]
    assert len(unread) == len(list(later.parameters())) - scalar
    assert all(weight.untyped_storage().nbytes() <= 4 for weight in unread)
    assert torch.isnan(unread[0]).all()
    layer = later.model.layers[1]
    read_weights(layer)
    assert torch.equal(layer.mlp.up_proj.weight, at_once.model.layers[1].mlp.up_proj.weight)
    assert source_of(later.model.layers[2].mlp.up_proj.weight) is not None
    read_weights(later)
    same(later, at_once)
    if not scalar:
        assert later.generation_config.eos_token_id == at_once.generation_config.eos_token_id


def test_adapters_and_kept_formats_are_the_same(folders: Path) -> None:
    def load() -> Any:
        torch.manual_seed(7)
        name, lora = str(folders / "bfloat16"), Lora(rank=4)
        return Policy(name, device=CPU, max_prompt_tokens=32, autocast=True, lora=lora).model

    at_once = load()
    with reading_later():
        later = load()
    frozen = [w for w in later.parameters() if source_of(w) is not None and w.dtype == torch.bfloat16]
    assert len(frozen) == 7 * SIZES["num_hidden_layers"]
    assert all(weight.untyped_storage().nbytes() == 2 for weight in frozen)
    read_weights(later)
    same(later, at_once)


def test_a_reward_head_under_adapters_is_read(tmp_path: Path) -> None:
    """peft copies the head."""
    tokenizer = load_tokenizer("tiny")
    base = load_scalar_model("tiny", tokenizer, dtype=torch.float32, device=CPU, new_head=True, seed=5)
    write_model(base, tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = TrainingConfig(str(tmp_path), device="cpu", dtype="float32", lora=LoraConfig(4))
    at_once = load_trainable(config, CPU).model
    with reading_later():
        later = load_trainable(config, CPU).model
    read_weights(later)
    same(later, at_once)


def test_experts_are_loaded_whole(folders: Path) -> None:
    tokenizer = load_tokenizer(str(folders / "experts"))
    with reading_later():
        model = load_causal_lm(str(folders / "experts"), tokenizer, dtype=torch.float32, device=CPU)
    assert not [weight for weight in model.parameters() if source_of(weight) is not None]


def test_a_checkpoint_without_a_weight_is_refused(folders: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for file in (folders / "untied").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with reading_later(), pytest.raises(BadInputError, match=r"lacks weights.*up_proj"):
        load_causal_lm(str(tmp_path), load_tokenizer(str(tmp_path)), dtype=torch.float32, device=CPU)
