"""Training in several processes: what the first process sends to the others, and what those do.

Covers: the collective calls in their order: settings, model, data, training, gathering the model. Leaves
out: the run record, evaluation and saving, which the first process does alone at the end
(`runs/train.py`); how work and weights are divided (`assay.models.parallelism.strategy`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.models.devices import pick_device
from assay.models.parallelism.distributed import PeerFailedError, local_device, torch_process_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy, resolve
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.methods.method import Method, method_of, method_payload
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.loop import train
from assay_rm_training.training_config import TrainingConfig


@contextmanager
def divided(method: Method, config: TrainingConfig, *, resume: bool) -> Iterator[tuple[SingleProcess, torch.device]]:
    """For the first process: the division of the work for the block, and its device. The others get the settings.
    Raises BadInputError where `config.parallel` does not fit the number of processes."""
    if resolve(config.parallel) == "none":
        yield SingleProcess(), pick_device(config.device)
        return
    device = local_device(config.device)
    with torch_process_group() as group:
        group.share((method_payload(method), config, resume))
        yield parallel_strategy(config.parallel, group, device), device


def load(method: Method, config: TrainingConfig, device: torch.device, parallel: SingleProcess) -> TrainableModel:
    """The full model to train; `begin` shards it."""
    return method.load(config, parallel.loading_device(device))


def begin(
    trainable: TrainableModel, data: EncodedDataset[Any], eval_data: EncodedDataset[Any] | None, parallel: SingleProcess
) -> None:
    """Shard the model, and send the encoded items to the other processes: only the first reads and encodes."""
    parallel.prepare(trainable)
    if parallel.world > 1:
        bare = replace(data, tags=()), replace(eval_data, tags=()) if eval_data else None
        parallel.share(bare)


def follow() -> None:
    """Everything that a process other than the first does, with settings and data from the first.

    Raises errors of this process; an error of the first process is reported there and ends this one quietly.
    """
    try:
        with torch_process_group() as group:
            order: tuple[dict[str, Any], TrainingConfig, bool] = group.share(None)
            payload, config, resume = order
            method, device = method_of(payload), local_device(config.device)
            parallel = parallel_strategy(config.parallel, group, device)
            trainable = load(method, config, device, parallel)
            parallel.prepare(trainable)
            datasets: tuple[EncodedDataset[Any], EncodedDataset[Any] | None] = parallel.share(None)
            data, eval_data = datasets
            nowhere = Path(os.devnull)
            task = method.task(trainable, config)
            train(trainable, task, data, config, nowhere, eval_data=eval_data, resume=resume, parallel=parallel)
            parallel.assembled(trainable, lambda: trainable)
    except PeerFailedError as error:
        if error.rank == 0:
            raise SystemExit(error.exit_code) from error
        raise
