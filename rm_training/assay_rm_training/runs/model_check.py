"""What a reward model is and whether it can be relied on here: its form, what is read where, and the parity that holds.

Covers: models of one's own, stock classifiers and published forms (`assay.models.adapters`). Leaves out: recording the
outcome, stock classes and vLLM beside it (`verify`), what a score is worth (`assay eval`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.domain import Message, Response, response_text
from assay.models.spec import ParityCheck, RewardModelSpec
from assay.score import Score, ScoreFailure
from assay.workspace import Workspace
from assay_rm_training.checkpoints.parity import check_scorer, compare
from assay_rm_training.runs.verify import PRINCIPLE, TWICE, sentences
from assay_serving.engines.published import PublishedLoader, pair_form
from assay_serving.engines.token import Reading
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import Loader
from assay_serving.model_reference import is_description, known_spec
from assay_serving.scorer import ScoreItem

STOCK, OWN = "stock", "assay"
PAIR = "which of two responses, in one pass over both (assay eval-judge, eval --judge)"
_STOCK_READS = "the label of a stock classifier at the conversation's last token"
_READS = {
    "scalar": "one logit at the conversation's last token",
    "principle": "log P(Yes) - log P(No) at the answer to the question",
    "generative": "the verdict after the model's own reasoning",
    "implicit": "log-probabilities of the response's tokens",
}


@dataclass(frozen=True)
class ModelCheck:
    """`form`: a published one's name, "stock", "assay" for a model with a spec. `example`: a conversation as the model
    reads it; `read_at`: its tokens there. `questions`: what can be asked. `note`: why there are no `checks`, say."""

    model: str
    form: str
    reads: str
    source: str
    version: str
    length: int
    template: str
    example: str
    read_at: tuple[str, ...]
    parts: tuple[str, ...]
    questions: tuple[str, ...]
    checks: tuple[ParityCheck, ...]
    note: str = ""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def check_model(workspace: Workspace | None, config: ModelConfig, *, responses: int = 16) -> ModelCheck:
    """Load it twice and compare. Raises what loading it raises, which says what is missing."""
    loader = Loader(workspace.root if workspace is not None else None)
    config = loader.resolve(config)
    spec = known_spec(config.reference)
    pair = pair_form(config)
    pairs = pair is not None and pair.compares
    load: Callable[[ModelConfig], Any] = PublishedLoader.open if pairs else loader.load
    scorer = load(config)
    info = scorer.info
    principle = PRINCIPLE if info.kind == "principle" else None
    form, reads, source = _form(config, spec, scorer)
    example, read_at = _example(scorer, principle, pairs=pairs)
    checks: list[ParityCheck] = []
    parts: tuple[str, ...] = ()
    note = ""
    if info.kind == "generative":
        note = "a judge's parity is checked on recorded answers: assay verify"
    else:
        sample = sentences(principle)[:responses]
        if pairs:
            sample = [_beside(one, sample[n - 1].response) for n, one in enumerate(sample)]
        first = scorer.score(sample)
        scored = [result for result in first if isinstance(result, Score)]
        parts = tuple(part.name for part in scored[0].parts) if scored else ()
        checks = [compare(first, load(config).score(sample)).as_check(TWICE), *check_scorer(scorer, sample)]
        failures = [result.message for result in first if isinstance(result, ScoreFailure)]
        note = f"{len(failures)} of {len(first)} sentences have no score: {failures[0]}" if failures else ""
    return ModelCheck(
        info.name,
        form,
        reads,
        source,
        info.version,
        info.max_length,
        info.template_hash,
        example,
        read_at,
        parts,
        (PAIR,) if pairs else questions_of(info.kind, steps=info.stepwise, bradley_terry=info.bradley_terry),
        tuple(checks),
        note,
    )


def questions_of(kind: str, *, steps: bool, bradley_terry: bool) -> tuple[str, ...]:
    """What a model of this kind answers, in words."""
    questions = ["a response to a prompt"]
    if kind == "principle":
        questions = ["a response to a prompt under a principle"]
    if steps:
        questions.append("a response's steps")
    if bradley_terry:
        questions.append("which of two responses (a difference of rewards is a log-odds)")
    return tuple(questions)


def _form(config: ModelConfig, spec: RewardModelSpec | None, scorer: Any) -> tuple[str, str, str]:
    published = getattr(scorer, "form", None)
    if published is not None:
        return published.name, published.adapter.reads, published.adapter.source
    kind = scorer.info.kind
    if is_description(config.reference):
        return OWN, "the models and verifiers that its file names", ""
    if spec is None:
        return STOCK, _STOCK_READS if kind == "scalar" else _READS.get(kind, kind), "transformers"
    reads = _READS[spec.kind]
    if spec.ratings is not None:
        reads = f"{len(spec.ratings.names)} ratings ({', '.join(spec.ratings.names)}) under an aggregation"
    elif spec.stepwise is not None:
        reads = f"one logit at the end of each step, their {spec.stepwise.aggregation}"
    return OWN, reads, f"trained on {spec.base}"


def _beside(item: ScoreItem, first: Response) -> ScoreItem:
    return replace(item, prompt=(*item.prompt, Message("response_1", response_text(first))))


def _example(scorer: Any, principle: str | None, *, pairs: bool = False) -> tuple[str, tuple[str, ...]]:
    """A small conversation as tokens, decoded, and the tokens that are read."""
    read, renderer = getattr(scorer, "read", None), getattr(scorer, "renderer", None)
    if read is None or renderer is None:
        return "", ()
    item = ScoreItem((Message("user", "QUESTION"),), "RESPONSE", principle)
    reading = read(_beside(item, "OTHER") if pairs else item)
    if not isinstance(reading, Reading):
        return "", ()
    ids: Sequence[int] = reading.conversation.ids
    tokens = tuple(str(renderer.tokenizer.decode([ids[position]])) for position in reading.places)
    return str(renderer.tokenizer.decode(list(ids))), tokens
