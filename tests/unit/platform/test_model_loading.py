"""Naming and loading models: pad tokens, heads that are never silently new, one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import BackendError, BadInputError, NotFoundError
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_causal_lm, load_scalar_model, load_tokenizer, resolve_model, spec_of
from assay.models.spec import Calibration, RewardModelSpec, weights_digest
from assay.models.tiny import make_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny-again")
    make_tiny(path)
    return path


@pytest.fixture(scope="module")
def reward_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny-reward")
    tokenizer = load_tokenizer("tiny")
    load_scalar_model("tiny", tokenizer, dtype=torch.float32, device=CPU, new_head=True).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_the_tiny_model_is_the_same_everywhere(folder: Path) -> None:
    from safetensors.torch import load_file

    here = load_file(folder / "model.safetensors")
    cached = load_file(Path(resolve_model("tiny")) / "model.safetensors")
    assert here.keys() == cached.keys()
    assert all(torch.equal(here[name], cached[name]) for name in here)


def test_pad_is_never_eos(folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    again = load_tokenizer(str(tmp_path))
    assert again.pad_token_id is not None
    assert again.pad_token_id != again.eos_token_id
    assert str(again.pad_token) not in str(again.chat_template)


def test_a_new_pad_token_grows_the_embeddings(tmp_path: Path) -> None:
    make_tiny(tmp_path)
    model = load_causal_lm(str(tmp_path), load_tokenizer(str(tmp_path)), dtype=torch.float32, device=CPU)
    before = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    tokenizer = load_tokenizer(str(tmp_path))
    tokenizer.add_special_tokens({"pad_token": "<|other pad|>"})
    grown = load_causal_lm(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU)
    assert grown.get_input_embeddings().num_embeddings == before + 1
    assert grown.config.pad_token_id == tokenizer.pad_token_id


def test_a_head_is_never_silently_new(reward_folder: Path) -> None:
    tokenizer = load_tokenizer("tiny")
    with pytest.raises(BadInputError, match="without a reward head"):
        load_scalar_model("tiny", tokenizer, dtype=torch.float32, device=CPU)
    with pytest.raises(BadInputError, match="already is a reward model"):
        load_scalar_model(str(reward_folder), tokenizer, dtype=torch.float32, device=CPU, new_head=True)


@pytest.mark.parametrize("head", ["score.weight", "score.0.weight", "v_head.summary.weight", "value_head.weight"])
def test_a_head_that_the_configuration_does_not_name_is_not_replaced(folder: Path, tmp_path: Path, head: str) -> None:
    """As OpenRLHF, TRL's value heads and Qwen's own reward model classes save them."""
    from safetensors.torch import load_file, save_file

    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights[head] = torch.ones(1, weights["model.norm.weight"].shape[0])
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=r"has a head of its own \((score|v_head|value_head)"):
        load_scalar_model(str(tmp_path), load_tokenizer("tiny"), dtype=torch.float32, device=CPU, new_head=True)


def test_a_soft_capped_model_keeps_its_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where transformers would take fused attention, which leaves the cap out or fails on it."""
    from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2PreTrainedModel

    monkeypatch.setattr(Gemma2PreTrainedModel, "_supports_sdpa", True)
    tokenizer = load_tokenizer("tiny")
    config = Gemma2Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, intermediate_size=64, attn_logit_softcapping=0.05, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(tmp_path)
    ids = torch.tensor([[5, 9, 14, 3, 20, 7, 11, 6]])

    def logits(model: torch.nn.Module) -> torch.Tensor:
        with torch.inference_mode():
            return torch.as_tensor(model(input_ids=ids).logits)

    assert AutoModelForCausalLM.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
    stock: Any = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    stock.eval()
    ours = load_causal_lm(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU)
    torch.testing.assert_close(logits(ours), logits(stock))
    classifier = load_scalar_model(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU, new_head=True)
    assert classifier.config._attn_implementation == "eager"


def test_a_reward_model_is_no_policy(reward_folder: Path) -> None:
    with pytest.raises(BadInputError, match="is a reward model"):
        load_causal_lm(str(reward_folder), load_tokenizer("tiny"), dtype=torch.float32, device=CPU)


def test_a_saved_head_comes_back(reward_folder: Path) -> None:
    tokenizer = load_tokenizer("tiny")
    made = load_scalar_model("tiny", tokenizer, dtype=torch.float32, device=CPU, new_head=True, seed=0)
    loaded = load_scalar_model(str(reward_folder), tokenizer, dtype=torch.float32, device=CPU)
    assert torch.equal(made.score.weight, loaded.score.weight)  # type: ignore[arg-type, union-attr]
    assert json.loads((reward_folder / "config.json").read_text())["problem_type"] == "regression"


def test_a_checkpoint_that_lost_its_head_is_refused(reward_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for file in reward_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=r"lacks weights, which would be random: score\.weight"):
        load_scalar_model(str(tmp_path), load_tokenizer("tiny"), dtype=torch.float32, device=CPU)


@pytest.mark.parametrize("lost", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_language_model_that_lost_weights_is_refused(folder: Path, tmp_path: Path, lost: str) -> None:
    from safetensors.torch import load_file, save_file

    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tokenizer = load_tokenizer("tiny")
    load_causal_lm(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU)
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=f"lacks weights, which would be random: {lost}"):
        load_causal_lm(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU)
    if lost.startswith("model."):
        with pytest.raises(BadInputError, match=f"lacks weights, which would be random: {lost}"):
            load_scalar_model(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU, new_head=True)


def test_an_encoder_may_be_without_the_layer_that_pools(tmp_path: Path) -> None:
    """As BERT's masked language models are saved: it is new with the head."""
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = load_tokenizer("tiny")
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForMaskedLM(config).save_pretrained(tmp_path)
    model = load_scalar_model(str(tmp_path), tokenizer, dtype=torch.float32, device=CPU, new_head=True)
    assert model.config.num_labels == 1


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "a/b/c", ""])
def test_an_unknown_model_is_one_line(name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        load_tokenizer(name)
    assert "\n" not in str(caught.value)


def test_a_broken_checkpoint_is_one_line(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(BackendError) as caught:
        load_causal_lm(str(tmp_path), load_tokenizer(str(folder)), dtype=torch.float32, device=CPU)
    assert "\n" not in str(caught.value)


def test_a_missing_device_is_one_line() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(BadInputError, match="not available"):
        pick_device("cuda")
    assert pick_device("auto").type in ("cpu", "mps")
    assert pick_dtype(CPU, "float32") is torch.float32
    with pytest.raises(BadInputError, match="unknown number format"):
        pick_dtype(CPU, "float8")


def test_the_spec_round_trips_and_calibrating_keeps_the_version(reward_folder: Path) -> None:
    version = weights_digest(reward_folder)
    spec = RewardModelSpec("scalar", "tiny", "abc", 512, version)
    spec.write(reward_folder)
    assert RewardModelSpec.read(reward_folder) == spec
    assert weights_digest(reward_folder) == version
    calibrated = spec.calibrated(Calibration(2.0, 1.0, "held-out", 100))
    calibrated.write(reward_folder)
    assert RewardModelSpec.read(reward_folder) == calibrated
    assert weights_digest(reward_folder) == version


def test_other_weights_under_the_same_spec_are_refused(reward_folder: Path, tmp_path: Path) -> None:
    for file in reward_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    RewardModelSpec("scalar", "tiny", "abc", 512, weights_digest(tmp_path)).write(tmp_path)
    (tmp_path / "README.md").write_text("a model card may change")
    assert spec_of(str(tmp_path), template_hash=lambda: "abc").version == weights_digest(tmp_path)
    model = load_scalar_model(str(tmp_path), load_tokenizer("tiny"), dtype=torch.float32, device=CPU)
    with torch.no_grad():
        model.score.weight.add_(1.0)  # type: ignore[operator, union-attr]
    model.save_pretrained(tmp_path)
    with pytest.raises(BadInputError, match="is not the checkpoint"):
        spec_of(str(tmp_path), template_hash=lambda: "abc")


def test_a_broken_spec_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "assay.json").write_text('{"format": 1, "kind": "scalar"}')
    with pytest.raises(BadInputError, match=r"assay\.json"):
        RewardModelSpec.read(tmp_path)


def test_probabilities_of_a_calibration() -> None:
    calibration = Calibration(temperature=2.0, reference=1.0, fitted_on="x", pairs=10)
    assert calibration.probability(1.0) == 0.5
    assert calibration.pair_probability(3.0, 1.0) == pytest.approx(0.7310585786)  # sigmoid(1)
    assert calibration.pair_probability(1.0, 3.0) == pytest.approx(1 - 0.7310585786)
    assert calibration.probability(-1e6) == 0.0
    with pytest.raises(BadInputError):
        Calibration(temperature=0.0, reference=0.0, fitted_on="x", pairs=1)


@pytest.mark.slow
def test_the_embedded_model_speaks(tmp_path: Path) -> None:
    from assay.domain import Message
    from assay.models.chat.renderer import Renderer

    try:
        tokenizer = load_tokenizer("smollm2")
    except NotFoundError as error:
        pytest.skip(str(error))
    model = load_causal_lm("smollm2", tokenizer, dtype=torch.float32, device=CPU)
    prompt = Renderer(tokenizer, max_length=512).encode((Message("user", "What is the capital of France?"),))
    made = model.generate(torch.tensor([prompt.ids]), max_new_tokens=12, do_sample=False)  # type: ignore[operator]
    assert "Paris" in tokenizer.decode(made[0, len(prompt) :])
