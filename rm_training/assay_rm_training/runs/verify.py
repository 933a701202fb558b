"""The parity checks on an existing checkpoint, of the workspace, a folder or the hub, as a recorded run.

Covers: loading it twice, the engine's other code paths, transformers' stock class, vLLM where configured; writing the
outcome to spec and card. Leaves out: what a check compares (`parity.py`). Checks that only the training process can
make (trained = saved) keep their recorded outcome.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.pairs import load_pairs_or_file
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import ParityCheck, RewardModelSpec
from assay.runs.progress_bar import progress_bar
from assay.runs.record import locate_model
from assay.score import Score, ScoreFailure, ScoreResult
from assay.workspace import Workspace
from assay_rm_training.checkpoints.card_sections import parity_lines, write_section
from assay_rm_training.checkpoints.parity import check_scorer, compare, verdict
from assay_rm_training.checkpoints.vllm_parity import vllm_check, vllm_python
from assay_rm_training.run_settings import VerificationConfig
from assay_rm_training.runs.recorded import recorded_run
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.generative.reader import VerdictReader, reading_items
from assay_serving.generative.templates import format_named
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.model_reference import known_spec
from assay_serving.scorer import ScoreItem, Scorer

TWICE = "loaded = loaded again"
STOCK = "engine = stock transformers"
PRINCIPLE = "The response is correct."  #: the principle that the sample is scored under by default
_TEXTS = (
    ("Name a metal.", "Gold."),
    ("Name a metal.", "Glass is not a metal, but silver is."),
    ("What is 17 * 23?", "391"),
    ("What is 17 * 23?", "17 times 20 is 340 and 17 times 3 is 51, so the product is 391."),
    ("Explain rain to a child.", "Water goes up from the sea, makes clouds, gets heavy and falls down. " * 3),
    ("Übersetze: good morning", "Guten Morgen! ☀️"),
    ("Write a function that adds two numbers.", "def add(a, b):\n    return a + b\n"),
    ("Who are you?", "I am an assistant. " * 12),
)


@dataclass(frozen=True)
class ModelVerification:
    """`checks`: those made now, and those of the training. `written`: the folder whose spec was updated."""

    model: str
    version: str
    parity: str
    checks: tuple[ParityCheck, ...]
    written: Path | None
    run_id: str | None

    @property
    def passed(self) -> bool:
        return self.parity == "passed"


def verify_model(workspace: Workspace | None, config: VerificationConfig) -> ModelVerification:
    """Make every check that this model and machine allow, with progress on standard error."""
    source, artifact = locate_model(workspace, config.model)
    stored_spec = known_spec(source)
    if stored_spec is not None and stored_spec.kind == "principle" and config.principle is None:
        config = replace(config, principle=PRINCIPLE)
    sample = _sample(workspace, config)
    with recorded_run(workspace, "verify", asdict(config), model=(source, artifact)) as run:
        name = config.model if config.model != source else None

        judging = stored_spec.judging if stored_spec is not None else None
        if judging is not None:  # sampling again could differ at a near tie: recorded answers are read
            sample = reading_items(sample, format_named(judging.format))

        def load() -> Scorer:
            model = ModelConfig(source, name, device=config.device, dtype=config.dtype, allow_failed_parity=True)
            return load_scorer(model) if judging is None else VerdictReader.load(model)

        with progress_bar("verifying", unit="responses") as advance:
            scorer = load()
            first = scorer.score(sample, advance)
            if all(isinstance(result, ScoreFailure) for result in first):
                # This says nothing about the checkpoint, so it is not marked as failed.
                why = next((r.message for r in first if isinstance(r, ScoreFailure)), "the sample is empty")
                raise BadInputError(f"nothing to compare: {config.model} scores none of the sample: {why}")
            again = load().score(sample, advance)
            checks = [compare(first, again, tolerance=config.tolerance).as_check(TWICE)]
            checks += check_scorer(scorer, sample, tolerance=config.tolerance, advance=advance)
            if isinstance(scorer, TransformersScorer) and scorer.spec.is_one_logit:
                checks.append(_stock_check(source, scorer.renderer, sample, first, config.tolerance))
                python = vllm_python()
                folder = Path(source).expanduser()
                if python is not None and folder.is_dir():
                    check = vllm_check(
                        folder, scorer.renderer, sample, first, python=python, tolerance=config.tolerance
                    )
                    checks += [check] if check is not None else []
        spec = _spec_to_write(source, scorer, config)
        if spec is not None:
            new_names = {check.name for check in checks}
            checks = [*(check for check in spec.parity_checks if check.name not in new_names), *checks]
        parity = verdict(checks)
        written = None
        if spec is not None:
            written = Path(source).expanduser()
            replace(spec, parity=parity, parity_checks=tuple(checks)).write(written)
            write_section(written, "Parity", parity_lines(checks))
        if run is not None:
            run.metrics.update({"parity": parity, "checks": [asdict(check) for check in checks]})
        return ModelVerification(
            scorer.info.name, scorer.info.version, parity, tuple(checks), written, run.id if run else None
        )


def _spec_to_write(source: str, scorer: Scorer, config: VerificationConfig) -> RewardModelSpec | None:
    """The spec of a model folder to write the outcome to; None where nothing is written. Formats other than float32
    round by more than the tolerance: their outcome is reported only."""
    folder = Path(source).expanduser()
    if not config.write or not folder.is_dir() or config.dtype != "float32":
        return None
    spec = RewardModelSpec.read(folder)
    if spec is None and config.adopt and isinstance(scorer, TransformersScorer):
        return scorer.spec
    return spec


def sentences(principle: str | None) -> list[ScoreItem]:
    """The built-in sample: short conversations, then the same after an earlier exchange."""
    short = [ScoreItem((Message("user", question),), answer, principle) for question, answer in _TEXTS]
    history = (Message("user", "Hello"), Message("assistant", "Hello! How can I help?"))
    return [*short, *(ScoreItem((*history, *item.prompt), item.response, principle) for item in short)]


def _sample(workspace: Workspace | None, config: VerificationConfig) -> list[ScoreItem]:
    if config.data is None:
        return sentences(config.principle)[: config.responses]
    pairs = load_pairs_or_file(workspace, config.data)
    some = pairs[:: max(1, 2 * len(pairs) // config.responses)]
    items = [ScoreItem(p.prompt, text, config.principle) for p in some for text in (p.chosen, p.rejected)]
    return items[: config.responses]


def _stock_check(
    source: str, renderer: Renderer, sample: Sequence[ScoreItem], scores: Sequence[ScoreResult], tolerance: float
) -> ParityCheck:
    """The reward as `AutoModelForSequenceClassification`'s one logit, row by row: without our pooling or batching."""
    rewards = _stock_rewards(source, renderer, sample, scores)
    stock = [replace(s, reward=next(rewards)) if isinstance(s, Score) else s for s in scores]
    return compare(scores, stock, tolerance=tolerance).as_check(STOCK)


def _stock_rewards(
    source: str, renderer: Renderer, sample: Sequence[ScoreItem], scores: Sequence[ScoreResult]
) -> Iterator[float]:
    import torch

    from assay.models.attention.packing import backbone
    from assay.models.loading import is_soft_capped, load_config, resolve_model
    from assay.models.quiet import quiet_transformers
    from assay.models.vision import classifier_for

    options: dict[str, Any] = {"num_labels": 1, "dtype": torch.float32}
    options |= {"trust_remote_code": False, "use_safetensors": True}
    config = load_config(source)
    if is_soft_capped(config):
        options["attn_implementation"] = "eager"  # as its authors ask
    with quiet_transformers():
        model = classifier_for(config).from_pretrained(resolve_model(source), **options).eval()
    for item, score in zip(sample, scores, strict=True):
        if isinstance(score, Score):
            encoded = renderer.encode(item.prompt, item.response)
            inputs = {"input_ids": torch.tensor([encoded.ids])}
            if (images := renderer.images) is not None:
                inputs |= images.inputs(backbone(model), inputs["input_ids"], [encoded.images])
            with torch.inference_mode():
                yield float(model(**inputs).logits[0, 0])
