"""A reward model trained on a device that is not the host: the host's numbers, and how often it is waited for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend_device import on_pretend_device, passages

from assay.models.chat.renderer import Renderer
from assay.planning.request import PlanRequest
from assay_rm_training.methods.method import PreparesData, method_of
from assay_rm_training.plan import made_up
from assay_rm_training.training.loop import make_optimizer, train_step
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CONFIG = TrainingConfig(base="tiny", dtype="float32", batch_size=4)


def trained(device: torch.device, name: str, base: str, lora: bool) -> list[tuple[float, float, int, int]]:
    """Loss and gradient's norm of the second of two steps, and how often the device was read and waited for to write,
    in passes of all items and of one."""
    method, config = method_of({"name": name}), replace(CONFIG, base=base, lora=LoraConfig(4) if lora else None)
    steps = []
    for tokens in (4000, 10):
        config = replace(config, micro_batch_tokens=tokens)
        trainable = method.load(config, device)
        renderer = Renderer(trainable.tokenizer, max_length=4096)
        data = method.encode(made_up(method, renderer, PlanRequest(prompt_tokens=20, response_tokens=20)), renderer)
        if isinstance(method, PreparesData):
            data, _ = method.prepare(trainable, config, data, None)
        task: Any = method.task(trainable, config)
        items = [data.items[n % len(data.items)] for n in range(4)]
        optimizer = make_optimizer(trainable, config)
        train_step(trainable, task, items, config, optimizer)
        optimizer.step()
        seen = passages()
        step = train_step(trainable, task, items, config, optimizer)
        steps.append((step.loss, step.grad_norm, seen.reads.total(), seen.waits.total()))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lora"),
    [("bt", False), ("bt", True), ("dpo", False), ("principle", False)],
    ids=["bt", "bt-lora", "dpo", "principle"],
)
def test_a_step_reads_its_figures_and_its_norm_and_nothing_else(
    name: str, lora: bool, tiny_principle_base: Path
) -> None:
    base = str(tiny_principle_base) if name == "principle" else "tiny"
    host = trained(torch.device("cpu"), name, base, lora)
    on_device = on_pretend_device(trained, name, base, lora)
    assert [step[2:] for step in on_device] == [(2, 0), (2, 0)]
    assert [step[:2] for step in on_device] == [pytest.approx(step[:2], rel=1e-4) for step in host]
