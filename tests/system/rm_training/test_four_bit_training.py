"""SmolLM2-135M in 4 bit under adapters: it learns, and its gradients are those of its dequantized weights."""

from pathlib import Path

import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.models.chat.renderer import Renderer
from assay.models.four_bit import FourBitLinear, dequantize
from assay.models.memory_options import INSTALL
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.model.trainable_model import load_trainable
from assay_rm_training.training.loop import make_optimizer, train, train_step
from assay_rm_training.training_config import LoraConfig, TrainingConfig


@pytest.mark.slow(
    reason="15 CPU seconds; the same on the tiny model is tests/invariants/rm_training/test_memory_options"
)
def test_smollm2_learns_in_4_bit(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason=INSTALL)
    config = TrainingConfig(
        "smollm2", lora=LoraConfig(4), base_weights="4bit", batch_size=4, epochs=4, dtype="float32", device="cpu"
    )
    method = BradleyTerry()
    trainable = load_trainable(config, torch.device("cpu"))
    layers = [module for module in trainable.model.modules() if isinstance(module, FourBitLinear)]
    assert sum(layer.weight.nbytes + layer.scales.nbytes for layer in layers) / sum(
        layer.in_features * layer.out_features for layer in layers
    ) == pytest.approx(4.5 / 8)
    pairs = [
        PreferencePair((Message("user", f"Add {n} and 1."),), f"It is {n + 1}.", "I do not know.") for n in range(4)
    ]
    data = method.encode(pairs, Renderer(trainable.tokenizer, max_length=128))
    task = method.task(trainable, config)
    summary = train(trainable, task, data, config, tmp_path)
    assert summary.last_loss < 0.9 * summary.first_loss

    gradients = []
    for in_4_bit in (True, False):
        train_step(trainable, task, data.items, config, make_optimizer(trainable, config))
        gradients.append({name: p.grad for name, p in trainable.trainable().items() if p.grad is not None})
        for layer in layers if in_4_bit else ():
            dequantize(layer)
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-4, atol=1e-6), name
