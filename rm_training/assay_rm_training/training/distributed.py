"""Training in several processes: what the first process sends to the others, and what those do.

Covers: the collective calls in their order: settings, model, data, training, gathering the model. Leaves
out: the run record, evaluation and saving, which the first process does alone at the end
(`runs/train.py`); how work and weights are divided (`assay.models.parallelism.strategy`).
"""

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.models.loading import context_length
from assay.models.parallelism.distributed import local_device
from assay.models.parallelism.process_group import worker_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay_policy_training.core.logprobs import check_head
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.stored_dataset import share_datasets
from assay_rm_training.methods.method import method_of
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.loop import train
from assay_rm_training.training_config import TrainingConfig


class WorkerSettings(NamedTuple):
    """What the other processes receive from the first. `method`: its payload."""

    method: dict[str, Any]
    config: TrainingConfig
    resume: bool


def divide(trainable: TrainableModel, parallel: SingleProcess) -> None:
    """In all processes together. Raises BadInputError as `check_head`, where that could not be done at loading."""
    parallel.prepare(trainable)
    if trainable.unchecked:
        model: Any = trainable.model.eval()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            parallel.forward(model, lambda: check_head(model, model.device))
        model.train()


def begin(
    trainable: TrainableModel, data: EncodedDataset[Any], eval_data: EncodedDataset[Any] | None, parallel: SingleProcess
) -> None:
    """Shard the model, and give the other processes the encoded items: only the first reads and encodes."""
    divide(trainable, parallel)
    if parallel.world > 1:
        share_datasets((data, eval_data), parallel)


def run_worker() -> None:
    """Everything that a process other than the first does, with settings and data from the first.

    Raises as `worker_group`.
    """
    with tempfile.TemporaryDirectory(prefix="assay-tokens-") as copies, worker_group() as group:
        settings: WorkerSettings = group.share(None)
        config, method = settings.config, method_of(settings.method)
        device = local_device(config.device)
        parallel = parallel_strategy(config.parallel, group, device)
        with parallel.loading():
            trainable = method.load(config, device)
        config = config.within(context_length(trainable.model.config))
        divide(trainable, parallel)
        datasets = share_datasets(None, parallel, Path(copies))
        assert datasets[0] is not None
        train(
            trainable,
            method.task(trainable, config),
            datasets[0],
            config,
            Path(os.devnull),
            eval_data=datasets[1],
            resume=settings.resume,
            parallel=parallel,
        )
        parallel.assembled(trainable, lambda: trainable)
