"""Training in several processes: what the first process sends to the others, and what those do.

Covers: the collective calls in their order: settings, model, data, training; of a model whose weights are divided also
the scores of the parity check and writing it, from each process's shares. Leaves out: the run record, evaluation and
the checks of what was written, which the first process does alone at the end (`runs/train.py`); how work and weights
are divided (`assay.models.parallelism.strategy`).
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.models.chat.renderer import Renderer
from assay.models.loading import context_length
from assay.models.parallelism.distributed import local_device
from assay.models.parallelism.process_group import worker_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay.models.spec import RewardModelSpec
from assay.score import ScoreResult
from assay_policy_training.core.logprobs import check_head
from assay_policy_training.training.distributed import reported_once
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.stored_dataset import share_datasets
from assay_rm_training.methods.method import FinishesTraining, Method, PreparesData, method_of
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.loop import train
from assay_rm_training.training.written_weights import write_trained
from assay_rm_training.training_config import TrainingConfig
from assay_serving.scorer import ScoreItem


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
        parallel.settle(model)
        model.train()


def begin(
    trainable: TrainableModel,
    method: Method,
    config: TrainingConfig,
    datasets: Sequence[EncodedDataset[Any] | None] | None,
    parallel: SingleProcess,
    copies: Path | None = None,
) -> tuple[EncodedDataset[Any], EncodedDataset[Any] | None]:
    """Shard the model, give the other processes the encoded items (only the first reads and encodes: `datasets` are
    its training and evaluation data), and prepare them. `copies`: as of `share_datasets`."""
    divide(trainable, parallel)
    if parallel.world > 1:
        datasets = share_datasets(datasets, parallel, copies)
    assert datasets is not None
    data, eval_data = datasets
    assert data is not None
    if isinstance(method, PreparesData):
        data, eval_data = method.prepare(trainable, config, data, eval_data, parallel)
    return data, eval_data


class Saving(NamedTuple):
    """What of a model is to be written. `sample`: responses that it scores before; `length`: of the renderer."""

    spec: RewardModelSpec
    sample: list[ScoreItem]
    length: int
    dtype: torch.dtype


def finish(
    trainable: TrainableModel, method: Method, data: EncodedDataset[Any], parallel: SingleProcess
) -> dict[str, Any]:
    """Detach what is not saved; fields of the spec. In all processes together where weights are divided."""
    parallel.settle(trainable.model)
    return method.finish(trainable, data) if isinstance(method, FinishesTraining) else {}


def write_together(
    trainable: TrainableModel, method: Method, saving: Saving | None, folder: Path, parallel: SingleProcess
) -> list[ScoreResult]:
    """`write_trained` to the first process's `folder`, in all processes that hold a part of the model. `saving`: the
    first process's."""
    spec, sample, length, dtype = parallel.share(saving)
    renderer = Renderer(trainable.tokenizer, max_length=length, images=trainable.images)
    options: dict[str, Any] = {"engine": method.engine, "dtype": dtype, "parallel": parallel}
    return write_trained(trainable, renderer, spec, sample, folder, **options)


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
        with reported_once(group):
            data, eval_data = begin(trainable, method, config, None, parallel, Path(copies))
        train(
            trainable,
            method.task(trainable, config),
            data,
            config,
            Path(os.devnull),
            eval_data=eval_data,
            resume=settings.resume,
            parallel=parallel,
        )
        if parallel.equal_passes:
            finish(trainable, method, data, parallel)
            write_together(trainable, method, None, Path(os.devnull), parallel)
