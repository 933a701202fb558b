"""The finished reward model on disk: a stock sequence classifier that any engine loads, with the trained one's scores.

Covers: merging adapters, saving whole or not at all, the parity gate (saved, loaded again through the serving engine
in float32, compared on a sample of scores), the spec. Leaves out: the model card's text (`model_card.py`), lineage.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.errors import BackendError, BadInputError
from assay.models.quiet import quiet_transformers
from assay.models.renderer import Renderer
from assay.models.spec import RewardModelSpec, weights_digest
from assay.score import Score, ScoreResult
from assay_rm_training.base_model import Trainee
from assay_rm_training.methods import Engine
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.transformers_engine import TransformersScorer

#: Largest allowed |difference| of two rewards: this + this * |reward|. Float32 sums in another order differ by about
#: 1e-6 a layer; a lost head, a wrong template or a lost adapter by far more than this.
TOLERANCE = 1e-4
SAMPLE = 32  # responses compared


@dataclass(frozen=True)
class Parity:
    """Outcome of comparing two lists of scores: `largest` |difference| over `compared` responses."""

    passed: bool
    largest: float
    compared: int
    detail: str = ""


def compare(before: Sequence[ScoreResult], after: Sequence[ScoreResult]) -> Parity:
    """Equal within TOLERANCE, and failing on the same items."""
    largest, compared = 0.0, 0
    for number, (first, second) in enumerate(zip(before, after, strict=True), start=1):
        if isinstance(first, Score) and isinstance(second, Score):
            compared += 1
            gap = abs(first.reward - second.reward)
            largest = max(largest, gap)
            if gap > TOLERANCE + TOLERANCE * abs(first.reward):
                return Parity(False, largest, compared, f"response {number}: {first.reward:.6g} != {second.reward:.6g}")
        elif isinstance(first, Score) != isinstance(second, Score):
            return Parity(False, largest, compared, f"response {number} is scored by one and fails in the other")
    if not compared:
        return Parity(False, largest, 0, "no response of the sample could be scored")
    return Parity(True, largest, compared)


def merged_scorer(
    trainee: Trainee,
    spec: RewardModelSpec,
    renderer: Renderer,
    sample: Sequence[ScoreItem],
    *,
    engine: Engine = TransformersScorer,
) -> Scorer:
    """The serving engine around the trained model, its adapters folded in and checked to have changed nothing.

    Raises BackendError where merging changes scores.
    """
    if trainee.adapter is None:
        return engine(trainee.model, renderer, spec, name="trained")
    before = engine(trainee.model, renderer, spec, name="adapters").score(sample)
    scorer = engine(trainee.merge(), renderer, spec, name="trained")
    parity = compare(before, scorer.score(sample))
    if not parity.passed:
        raise BackendError(f"merging the adapters changed the scores ({parity.detail}); nothing was saved")
    return scorer


def save_checkpoint(
    trainee: Trainee,
    spec: RewardModelSpec,
    renderer: Renderer,
    folder: Path,
    *,
    sample: Sequence[ScoreItem],
    card: str,
    save_dtype: str = "float32",
    engine: Engine = TransformersScorer,
) -> tuple[RewardModelSpec, Parity]:
    """Write the model (merged before), tokenizer, card and spec to `folder`, which must not exist; returns what was
    written.

    The folder appears at once, complete and with its parity known. Raises BadInputError when it exists; BackendError
    when the reloaded model scores `sample` otherwise than the trained one: then the files are kept for inspection
    in `NAME.failed`, which the engine refuses to serve.
    """
    if folder.exists():
        raise BadInputError("exists already", file=folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    model = trainee.model
    if save_dtype == "bfloat16":
        model.bfloat16().float()  # type: ignore[no-untyped-call]  # compare what is loaded again: rounded too
    before = engine(model, renderer, spec, name="trained").score(sample)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with quiet_transformers():
            saved = model.bfloat16() if save_dtype == "bfloat16" else model
            saved.save_pretrained(scratch)
            trainee.tokenizer.save_pretrained(scratch)
        (scratch / "README.md").write_text(card, encoding="utf-8")
        os.chmod(scratch, 0o755)
        spec = replace(spec, version=weights_digest(scratch), parity="unchecked")
        spec.write(scratch)
        try:
            reloaded = engine.load(str(scratch), device=str(model.device), dtype="float32")
            parity = compare(before, reloaded.score(sample))
        except (BackendError, BadInputError) as error:
            parity = Parity(False, 0.0, 0, f"does not load again: {error}")
        if not parity.passed:
            replace(spec, parity=f"failed: {parity.detail}").write(scratch)
            failed = folder.with_name(folder.name + ".failed")
            shutil.rmtree(failed, ignore_errors=True)
            scratch.rename(failed)
            raise BackendError(
                f"the saved model does not give the trained model's scores ({parity.detail}); see {failed}"
            )
        spec = replace(spec, parity="passed")
        spec.write(scratch)
        scratch.rename(folder)
    except OSError as error:
        raise BackendError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return spec, parity
