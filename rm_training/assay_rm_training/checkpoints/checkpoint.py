"""Saving a reward model: a stock checkpoint that any engine loads, checked to give the trained model's scores.

Covers: saving atomically, the parity checks (as trained = reloaded by the serving engine in float32, single and
batched, the engine's other code paths, vLLM where configured), the spec. Leaves out: writing the weights
(`training/written_weights.py`), what a check compares (`parity.py`), the model card's text (`model_card.py`), lineage.
"""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.devices import unused_memory
from assay.models.quiet import quiet_transformers
from assay.models.spec import RewardModelSpec, weights_digest
from assay.planning.scoring_memory import weight_bytes
from assay_rm_training.checkpoints.card_sections import parity_lines, with_section
from assay_rm_training.checkpoints.parity import (
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
from assay_rm_training.training.written_weights import WrittenWeights, scratch_folder, write_trained, writing
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem, Scorer

__all__ = ["SAMPLE", "TOLERANCE", "Parity", "compare", "save_checkpoint"]


log = logging.getLogger(__name__)

_FEWER = 3  # one response in this many is also scored in all other ways


def save_checkpoint(
    trainable: TrainableModel,
    spec: RewardModelSpec,
    renderer: Renderer,
    folder: Path,
    *,
    sample: Sequence[ScoreItem],
    card: str | Callable[[Scorer], str],
    engine: Engine = TransformersScorer,
    written: WrittenWeights | None = None,
) -> tuple[RewardModelSpec, Parity]:
    """Write the model (adapters merged), tokenizer, card and spec to `folder`, which must not exist. Returns the spec,
    and the parity of the loaded and the trained model. `card`: or what writes it, of the model as it was saved, once
    that has passed. `written`: the weights, in a folder beside `folder`: `trainable` need not have the model any more.

    The folder is renamed into place when complete; every check and its largest difference are in the spec and the card.
    Raises BadInputError when the folder exists; BackendError when a check fails: then the files are kept for inspection
    in `NAME.failed`, which commands refuse to load by default.
    """
    scratch = scratch_folder(folder) if written is None else written.folder
    with writing(folder, scratch):
        if folder.exists():
            raise BadInputError("exists already", file=folder)
        if written is None:
            scores = write_trained(trainable, renderer, spec, sample, scratch, engine=engine)
            written = WrittenWeights(scratch, scores, trainable.model.device)
        with quiet_transformers():
            trainable.tokenizer.save_pretrained(scratch)
            if trainable.images is not None:
                trainable.images.save(scratch)
        os.chmod(scratch, 0o755)
        spec = replace(spec, version=weights_digest(scratch), parity="unchecked")
        spec.write(scratch)
        reloaded: Scorer | None = None
        try:
            models = 1 if spec.implicit is None or spec.implicit.reference is None else 2
            device = _with_room(models * weight_bytes(scratch, "float32"), written.device)
            reloaded = engine.load(ModelConfig(str(scratch), served_as=folder.name, device=str(device)))
            again = getattr(getattr(reloaded, "renderer", None), "images", None)
            if renderer.images is not None and again is not None:
                again.media = renderer.images.media
            after = reloaded.score(sample)
            parity = compare(written.scores, after)
            all_checks = [parity.as_check(SAVED), *check_scorer(reloaded, sample[::_FEWER])]
            if spec.is_one_logit and (python := vllm_python()) is not None:
                check = vllm_check(scratch, renderer, sample, after, python=python)
                all_checks += [check] if check is not None else []
        except (BackendError, BadInputError) as error:
            parity = Parity(False, 0.0, 0, f"does not load again: {error}")
            all_checks = [parity.as_check(SAVED)]
        spec = replace(spec, parity=verdict(all_checks), parity_checks=tuple(all_checks))
        spec.write(scratch)
        text = card if isinstance(card, str) else ""
        if not isinstance(card, str) and reloaded is not None and spec.parity == "passed":
            text = card(reloaded)
        (scratch / "README.md").write_text(with_section(text, "Parity", parity_lines(all_checks)), encoding="utf-8")
        if spec.parity != "passed":
            failed = folder.with_name(folder.name + ".failed")
            shutil.rmtree(failed, ignore_errors=True)
            scratch.rename(failed)
            raise BackendError(f"the saved model does not give the trained model's scores: {spec.parity}; see {failed}")
        scratch.rename(folder)
    return spec, parity


def _with_room(needed: int, device: torch.device) -> torch.device:
    """Where the saved model is loaded: in main memory where the device that held smaller weights (4 bit, bfloat16) has
    no room for `needed` bytes, those of float32."""
    free = unused_memory(device)
    if free is None or 1.1 * needed <= free:
        return device
    log.warning("%s has no room for the saved weights in float32: they are checked and evaluated on the CPU", device)
    return torch.device("cpu")
