"""What takes less of a GPU changes no number, or as little as is said; a resumed training is as one that was not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.models import memory_options
from assay.models.chat.renderer import Renderer
from assay.models.four_bit import FourBitLinear, dequantize
from assay.models.loading import load_tokenizer
from assay.models.offloaded import OffloadedAdamW
from assay.models.published_weights import merged_weights, round_weights, unpacked_bytes
from assay.models.spec import RewardModelSpec
from assay_rm_training.checkpoints.checkpoint import save_checkpoint
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.pair_dataset import encode_pairs
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.multi_objective import MultiObjective
from assay_rm_training.model.trainable_model import TrainableModel, load_trainable
from assay_rm_training.training import written_weights
from assay_rm_training.training.loop import make_optimizer, train, train_step
from assay_rm_training.training.written_weights import WrittenWeights
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.scorer import ScoreItem

CPU = torch.device("cpu")
BASE = TrainingConfig(
    "tiny", lr=1e-3, batch_size=4, micro_batch_tokens=64, epochs=2, weight_decay=0.1, dtype="float32", device="cpu"
)
ADAPTERS = replace(BASE, lora=LoraConfig(4), head_init="normal")


@pytest.fixture(scope="module")
def data() -> EncodedDataset[Any]:
    pairs = [
        PreferencePair((Message("user", "hi " * (n % 4 + 1)),), f"a good answer {n} " * (n % 3 + 1), f"bad {n}")
        for n in range(16)
    ]
    return encode_pairs(pairs, Renderer(load_tokenizer("tiny"), max_length=256))


def trained(config: TrainingConfig, data: EncodedDataset[Any], folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    folder.mkdir(exist_ok=True)
    trainable = load_trainable(config, CPU)
    train(trainable, BradleyTerry().task(trainable, config), data, config, folder, **options)
    return {name: p.detach() for name, p in trainable.model.named_parameters()}


def furthest(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max(float((second[name].float() - value.float()).abs().max()) for name, value in first.items())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adamw_on_the_host_is_adamw(dtype: str, data: EncodedDataset[Any], tmp_path: Path) -> None:
    config = replace(BASE, dtype=dtype)
    offloaded = replace(config, optimizer="adamw_offloaded")
    expected = trained(config, data, tmp_path / "whole")
    weights = trained(offloaded, data, tmp_path / "offloaded")
    assert all(torch.equal(weights[name], value) for name, value in expected.items())

    trainable = load_trainable(offloaded, CPU)
    optimizer = make_optimizer(trainable, offloaded)
    assert isinstance(optimizer, OffloadedAdamW)
    train_step(trainable, BradleyTerry().task(trainable, config), data.items[:4], offloaded, optimizer)
    matrix = trainable.trainable()["model.layers.0.mlp.up_proj.weight"]
    if dtype == "bfloat16":  # what is on the device: half a weight, and no gradient
        assert matrix.dtype == torch.bfloat16
        assert matrix.grad is None
        assert optimizer.masters[matrix].dtype == torch.float32
        assert optimizer.masters[matrix].grad is not None
    else:
        assert optimizer.masters[matrix] is matrix  # device and host are one


def test_several_outputs_of_a_head_stay_float32() -> None:
    """As its products are."""
    config = replace(BASE, dtype="bfloat16", optimizer="adamw_offloaded")
    trainable = MultiObjective(("helpful", "short")).load(config, CPU)
    make_optimizer(trainable, config)
    formats = {name: p.dtype for name, p in trainable.trainable().items()}
    assert formats[f"{trainable.heads[-1]}.weight"] == torch.float32
    assert formats["model.layers.0.mlp.up_proj.weight"] == torch.bfloat16


def test_moments_in_8_bit_are_near(data: EncodedDataset[Any], tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason=memory_options.INSTALL)
    expected = trained(BASE, data, tmp_path / "whole")
    start = {name: p.detach() for name, p in load_trainable(BASE, CPU).model.named_parameters()}
    distance = furthest(expected, trained(replace(BASE, optimizer="adamw_8bit"), data, tmp_path / "8bit"))
    assert 0 < distance < 0.3 * furthest(expected, start)  # 8 steps, none larger than about lr = 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "dtype"), [("adamw_offloaded", "bfloat16"), ("adamw_8bit", "float32")], ids=["offloaded", "8bit"]
)
def test_a_resumed_training_is_as_one_that_was_not(
    optimizer: Any, dtype: str, data: EncodedDataset[Any], tmp_path: Path
) -> None:
    if optimizer == "adamw_8bit":
        pytest.importorskip("bitsandbytes", reason=memory_options.INSTALL)
    config = replace(BASE, optimizer=optimizer, dtype=dtype, save_every=1)
    whole = trained(config, data, tmp_path / "whole")
    steps = iter(range(4))

    def stop(_: int) -> None:
        if next(steps) == 3:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        trained(config, data, tmp_path / "cut", advance=stop)
    resumed = trained(config, data, tmp_path / "cut", resume=True)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def _gradients(trainable: TrainableModel, data: EncodedDataset[Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    trainable.model.zero_grad()
    losses = BradleyTerry().task(trainable, ADAPTERS).measure(trainable, data.items).losses
    losses.sum().backward()  # type: ignore[no-untyped-call]
    return losses.detach(), {name: p.grad.clone() for name, p in trainable.trainable().items() if p.grad is not None}


def in_4_bit() -> TrainableModel:
    """With adapters that add something."""
    pytest.importorskip("bitsandbytes", reason=memory_options.INSTALL)
    trainable = load_trainable(replace(ADAPTERS, base_weights="4bit"), CPU)
    torch.manual_seed(5)
    for name, parameter in trainable.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    return trainable


def test_4_bit_weights_give_the_gradients_of_their_values(data: EncodedDataset[Any]) -> None:
    trainable = in_4_bit()
    layers = [module for module in trainable.model.modules() if isinstance(module, FourBitLinear)]
    assert len(layers) == 7 * trainable.model.config.num_hidden_layers
    assert all(8 * layer.weight.nbytes == layer.in_features * layer.out_features * 4 for layer in layers)
    losses, gradients = _gradients(trainable, data)
    written = dict(merged_weights(trainable.model))
    for layer in layers:
        dequantize(layer)
    float_losses, float_gradients = _gradients(trainable, data)
    assert torch.equal(losses, float_losses)
    assert gradients.keys() == float_gradients.keys()
    assert all(torch.equal(gradients[name], value) for name, value in float_gradients.items())
    of_floats = dict(merged_weights(trainable.model))
    assert written.keys() == of_floats.keys()
    assert all(torch.equal(written[name], value) for name, value in of_floats.items())


def test_4_bit_weights_are_rounded_as_they_are_written(data: EncodedDataset[Any]) -> None:
    trainable = in_4_bit()
    written = dict(merged_weights(trainable.model, dtype=torch.bfloat16))
    before, growth = sum(p.nbytes for p in trainable.model.parameters()), unpacked_bytes(trainable.model)
    losses, _ = _gradients(trainable, data)
    round_weights(trainable.model, torch.bfloat16)
    assert all(torch.equal(written[name], value.bfloat16()) for name, value in merged_weights(trainable.model))
    assert sum(p.nbytes for p in trainable.model.parameters()) - before == growth > 0
    rounded, _ = _gradients(trainable, data)
    assert not any(isinstance(module, FourBitLinear) for module in trainable.model.modules())
    assert torch.allclose(losses, rounded, atol=0.05)


@pytest.mark.parametrize(("free", "says"), [(10**4, "rounded in main memory"), (10**9, "")])
def test_4_bit_weights_are_saved_rounded_where_there_is_room(
    free: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainable = in_4_bit()
    renderer = Renderer(trainable.tokenizer, max_length=64)
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, 64, "unsaved")
    sample = [ScoreItem((Message("user", "hi"),), f"answer {n}") for n in range(4)]
    monkeypatch.setattr(written_weights, "unused_memory", lambda device: free)
    scratch = written_weights.scratch_folder(tmp_path / "m")
    options: dict[str, Any] = {"engine": TransformersScorer, "dtype": torch.bfloat16}
    scores = written_weights.write_trained(trainable, renderer, spec, sample, scratch, **options)
    written = WrittenWeights(scratch, scores, CPU)
    saved, _ = save_checkpoint(trainable, spec, renderer, tmp_path / "m", sample=sample, card="", written=written)
    assert saved.parity == "passed"
    assert says in caplog.text
    assert bool(says) == bool(caplog.records)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "adafactor", "parallel": "fsdp"}, "optimizer.*cannot be sharded"),
        ({"base_weights": "4bit"}, "base_weights.*all are trained"),
        ({"offload_activations": True}, "offload_activations.*gradient_checkpointing"),
    ],
)
def test_what_does_not_go_together_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message) as refused:
        replace(BASE, **changes)
    assert "\n" not in str(refused.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_options, "find_spec", lambda name: None)
    with pytest.raises(BadInputError, match="pip install bitsandbytes"):
        replace(BASE, optimizer="adamw_8bit")
