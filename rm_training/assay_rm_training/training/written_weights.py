"""Weights of a trained model, written to a folder that becomes its checkpoint.

Covers: the scratch folder and what happens to it where writing fails; the scores of the trained model before, rounded
as it is written; merging adapters while writing, a layer at a time, so that there is no second copy of the model; the
same of a model that is divided among processes. Leaves out: the rest of the checkpoint, its checks (`checkpoints`).
"""

import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.errors import BackendError
from assay.models.chat.renderer import Renderer
from assay.models.devices import unused_memory
from assay.models.parallelism.strategy import SingleProcess
from assay.models.published_weights import round_weights, unpacked_bytes, write_model
from assay.models.quiet import quiet_transformers
from assay.models.spec import RewardModelSpec
from assay.score import ScoreResult
from assay_rm_training.methods.method import Engine
from assay_rm_training.model.trainable_model import TrainableModel
from assay_serving.engines.implicit import load_reference
from assay_serving.scorer import ScoreItem

log = logging.getLogger(__name__)


class WrittenWeights(NamedTuple):
    """Weights that are in `folder`, of a model that was on `device`. `scores`: of the sample, by that model."""

    folder: Path
    scores: Sequence[ScoreResult]
    device: torch.device


def scratch_folder(folder: Path) -> Path:
    """A new one beside `folder`, from which it is renamed. What a killed process left of the same name is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    left = re.compile(rf"\.{re.escape(folder.name)}\.[a-z0-9_]{{8}}")  # as `tempfile` names them
    for other in folder.parent.iterdir():
        if left.fullmatch(other.name):
            shutil.rmtree(other, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))


@contextmanager
def writing(folder: Path, scratch: Path) -> Iterator[None]:
    """What is written to `scratch`, to be renamed to `folder`: removed where the block fails. Raises BackendError where
    the disk does."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, OSError):
            raise BackendError(f"cannot write {folder}: {error.strerror or error}") from error
        raise


def write_trained(
    trainable: TrainableModel,
    renderer: Renderer,
    spec: RewardModelSpec,
    sample: Sequence[ScoreItem],
    folder: Path,
    *,
    engine: Engine,
    dtype: torch.dtype = torch.float32,
    parallel: SingleProcess | None = None,
) -> list[ScoreResult]:
    """Write the weights (adapters merged) to `folder`; the scores of the sample by the trained model. With a `dtype`
    other than float32 the model is rounded in place before. Of a divided model all processes call this, and the first
    one writes. Raises OSError."""
    parallel = parallel or SingleProcess()
    model: Any = trainable.model
    parallel.settle(model)
    if dtype != torch.float32:  # compare what is loaded again: rounded too
        free = unused_memory(model.device)
        if free is not None and 1.1 * unpacked_bytes(model) > free:
            log.warning("%s has no room for unpacked weights: they are rounded in main memory", model.device)
            model.to("cpu")
        round_weights(model, dtype)
    options, reference = {}, None
    if parallel.equal_passes and spec.implicit is not None and spec.implicit.reference is not None:
        with parallel.loading():
            reference = load_reference(spec.implicit, trainable.tokenizer, model)
        parallel.shard(reference, keeps_head=False)
        options = {"reference": reference}
    score: Callable[[], list[ScoreResult]] = partial(
        parallel.forward, model, partial(engine(model, renderer, spec, name="trained", **options).score, sample)
    )
    with torch.no_grad():
        scores = score() if reference is None else parallel.forward(reference, score)
    del score, options, reference
    parallel.settle(model)
    with quiet_transformers():
        write_model(model, folder, dtype=dtype, main=parallel.main)
    return scores
