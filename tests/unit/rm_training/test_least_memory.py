"""What a training holds at least is known from configurations, and refused before weights are loaded."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from assay.errors import BadInputError
from assay.planning import least_memory
from assay.planning.least_memory import least_bytes, require_memory
from assay_rm_training.model.trainable_model import load_trainable
from assay_rm_training.training.loop import make_optimizer
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CPU = torch.device("cpu")
WHOLE = TrainingConfig(base="tiny", device="cpu", dtype="float32")
ADAPTERS = replace(WHOLE, lora=LoraConfig(rank=4))


def models(config: TrainingConfig) -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
    trainable = load_trainable(config, CPU)
    return [trainable.model], [make_optimizer(trainable, config)]


@pytest.mark.parametrize("config", [WHOLE, ADAPTERS])
def test_it_is_that_of_the_loaded_model_with_its_optimiser(config: TrainingConfig) -> None:
    (model,), (optimizer,) = models(config)
    sum(p.sum() for p in model.parameters() if p.requires_grad).backward()  # type: ignore[union-attr]
    optimizer.step()
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    moments = sum(v.nbytes for state in optimizer.state.values() for v in state.values())
    held = sum(p.nbytes for p in model.parameters()) + gradients + moments
    assert least_bytes(partial(models, config)) == held


def test_what_cannot_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, adapters = (least_bytes(partial(models, config)) for config in (WHOLE, ADAPTERS))
    changes = {"--lora 4": partial(models, ADAPTERS)}
    for usable, words in ((whole - 1, "--lora 4"), (adapters - 1, "a smaller model")):
        monkeypatch.setattr(least_memory, "usable_memory", lambda device, usable=usable: ("this card", usable))
        with pytest.raises(BadInputError, match=words) as refused:
            require_memory("tiny", partial(models, WHOLE), changes, CPU, 1, "--base")
        assert ("--lora 4" in str(refused.value)) == (usable >= adapters)
        assert "\n" not in str(refused.value)
    monkeypatch.setattr(least_memory, "usable_memory", lambda device: ("this card", whole))
    require_memory("tiny", partial(models, WHOLE), changes, CPU, 1, "--base")
    monkeypatch.setattr(least_memory, "usable_memory", lambda device: ("this card", whole // 2))
    require_memory("tiny", partial(models, WHOLE), changes, CPU, 2, "--base")  # each process has half
