"""Saving a reward model: a stock checkpoint that any engine loads, checked to give the trained model's scores.

Covers: merging adapters, saving atomically, the parity checks (merged, saved, reloaded by the serving engine in
float32, single and batched, the engine's other code paths, vLLM where configured), the spec. Leaves out: what a check
compares (`parity.py`), the model card's text (`model_card.py`), lineage.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.published_weights import write_model
from assay.models.quiet import quiet_transformers
from assay.models.spec import ParityCheck, RewardModelSpec, weights_digest
from assay.score import ScoreResult
from assay_rm_training.checkpoints.card_sections import parity_lines, with_section
from assay_rm_training.checkpoints.parity import (
    MERGED,
    SAMPLE,
    SAVED,
    TOLERANCE,
    Parity,
    check_scorer,
    compare,
    verdict,
)
from assay_rm_training.checkpoints.vllm_parity import vllm_check, vllm_python
from assay_rm_training.methods.method import Engine
from assay_rm_training.model.trainable_model import TrainableModel
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem, Scorer

__all__ = ["SAMPLE", "TOLERANCE", "Parity", "compare", "merged_scorer", "save_checkpoint"]


class WrittenWeights(NamedTuple):
    """A model whose weights are in `folder` already, and which is on `device` no more. `scores`: of the sample."""

    folder: Path
    scores: Sequence[ScoreResult]
    device: torch.device


_FEWER = 3  # one response in this many is also scored in all other ways


def scratch_folder(folder: Path) -> Path:
    """A new one beside `folder`, from which it is renamed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
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


def merged_scorer(
    trainable: TrainableModel,
    spec: RewardModelSpec,
    renderer: Renderer,
    sample: Sequence[ScoreItem],
    *,
    engine: Engine = TransformersScorer,
    checks: list[ParityCheck] | None = None,
) -> Scorer:
    """The serving engine around the trained model with its adapters merged, checked to give the same scores.

    `checks` gets the comparison, for `save_checkpoint`. Raises BackendError where merging changes scores.
    """
    if trainable.adapter is None:
        return engine(trainable.model, renderer, spec, name="trained")
    before = engine(trainable.model, renderer, spec, name="adapters").score(sample)
    scorer = engine(trainable.merge(), renderer, spec, name="trained")
    parity = compare(before, scorer.score(sample))
    if checks is not None:
        checks.append(parity.as_check(MERGED))
    if not parity.passed:
        raise BackendError(f"merging the adapters changed the scores ({parity.detail}); nothing was saved")
    return scorer


def save_checkpoint(
    trainable: TrainableModel,
    spec: RewardModelSpec,
    renderer: Renderer,
    folder: Path,
    *,
    sample: Sequence[ScoreItem],
    card: str | Callable[[Scorer], str],
    save_dtype: str = "float32",
    engine: Engine = TransformersScorer,
    checks: Sequence[ParityCheck] = (),
    written: WrittenWeights | None = None,
) -> tuple[RewardModelSpec, Parity]:
    """Write the model (merged before), tokenizer, card and spec to `folder`, which must not exist. Returns the spec,
    and the parity of the loaded and the trained model. `card`: or what writes it, of the model as it was saved;
    `written`: the weights, in a folder beside `folder`.

    The folder is renamed into place when complete; every check and its largest difference are in the spec and the card.
    `checks`: earlier ones of the same model. Raises BadInputError when the folder exists; BackendError when a check
    fails: then the files are kept for inspection in `NAME.failed`, which commands refuse to load by default.
    """
    model: Any = trainable.model
    device = model.device if written is None else written.device
    scratch = scratch_folder(folder) if written is None else written.folder
    with writing(folder, scratch):
        if folder.exists():
            raise BadInputError("exists already", file=folder)
        if written is None and save_dtype == "bfloat16":
            model.bfloat16().float()  # compare what is loaded again: rounded too
        before = written.scores if written is not None else engine(model, renderer, spec, name="trained").score(sample)
        with quiet_transformers():
            if written is None:
                write_model(model, scratch, dtype=torch.bfloat16 if save_dtype == "bfloat16" else torch.float32)
            trainable.tokenizer.save_pretrained(scratch)
            if trainable.images is not None:
                trainable.images.save(scratch)
        os.chmod(scratch, 0o755)
        spec = replace(spec, version=weights_digest(scratch), parity="unchecked", parity_checks=tuple(checks))
        spec.write(scratch)
        reloaded: Scorer | None = None
        try:
            reloaded = engine.load(ModelConfig(str(scratch), device=str(device)))
            again = getattr(getattr(reloaded, "renderer", None), "images", None)
            if renderer.images is not None and again is not None:
                again.media = renderer.images.media
            after = reloaded.score(sample)
            parity = compare(before, after)
            all_checks = [*checks, parity.as_check(SAVED), *check_scorer(reloaded, sample[::_FEWER])]
            if spec.is_one_logit and (python := vllm_python()) is not None:
                check = vllm_check(scratch, renderer, sample, after, python=python)
                all_checks += [check] if check is not None else []
        except (BackendError, BadInputError) as error:
            parity = Parity(False, 0.0, 0, f"does not load again: {error}")
            all_checks = [*checks, parity.as_check(SAVED)]
        text = card if isinstance(card, str) else card(reloaded) if reloaded is not None else ""
        spec = replace(spec, parity=verdict(all_checks), parity_checks=tuple(all_checks))
        spec.write(scratch)
        (scratch / "README.md").write_text(with_section(text, "Parity", parity_lines(all_checks)), encoding="utf-8")
        if spec.parity != "passed":
            failed = folder.with_name(folder.name + ".failed")
            shutil.rmtree(failed, ignore_errors=True)
            scratch.rename(failed)
            raise BackendError(f"the saved model does not give the trained model's scores: {spec.parity}; see {failed}")
        scratch.rename(folder)
    return spec, parity
