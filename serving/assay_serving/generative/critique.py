"""Models that criticise a response before they score it (CLoud): the reward is read after the model's own critique.

Source: "Critique-out-Loud Reward Models", arXiv 2408.11791, and zankner/CLoud: the critique ends with the end-of-turn
token and the head reads the last position; with several sampled critiques the reward is the mean. Departures: the
question is a turn of the user's and the critique one of the assistant's (theirs is all one turn of the user's); the
head is linear, theirs dense, tanh, projection.

Covers: asking for critiques, the pass over conversation and critique, their mean and spread. Leaves out: training
(`assay_rm_training.preference.critique`). The checkpoint is a causal language model; the head's weights lie with the
others under `assay_reward.weight`, which every other program leaves out.
"""

import hashlib
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from assay.conversation.message import response_turns
from assay.domain import Message, Prompt, Response
from assay.errors import BadInputError
from assay.models.chat.renderer import Encoded, Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.heads import head_outputs
from assay.models.loading import load_causal_lm, load_tokenizer, resolve_model, spec_of
from assay.models.quiet import quiet_transformers
from assay.models.readings import Critique
from assay.runs.progress_bar import Advance, silent
from assay.score import CRITIQUE, Score, ScoreFailure, ScorePart, ScoreResult
from assay_serving.engines.batching import plan_batches
from assay_serving.engines.packed import PackedScorer, require_parity
from assay_serving.engines.token import Reading, ScalarReader
from assay_serving.generative.generation import SamplingParams, generate
from assay_serving.generative.local import end_tokens
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import UNLIMITED, ScoreItem

if TYPE_CHECKING:
    import torch

    from assay_serving.engines.engine import ModelLoader

QUESTION = (
    "Criticise your last answer in a few sentences: is it correct, does it answer what was asked, and what would make "
    "it better?"
)
HEAD = "assay_reward"


def question_hash() -> str:
    return hashlib.sha256(QUESTION.encode()).hexdigest()[:16]


def critique_question(prompt: Prompt, response: Response) -> Prompt:
    """The conversation that the critique continues."""
    return (*prompt, *response_turns(response), Message("user", QUESTION))


def write_critiques(
    model: Any,
    renderer: Renderer,
    questions: Sequence[tuple[int, ...]],
    how: Critique,
    *,
    seed: int,
    budget: int = 8192,
) -> list[list[tuple[int, ...]]]:
    """Token ids of `how.samples` critiques of each question, each with its end-of-turn token; independent of the
    batch."""
    sampling = SamplingParams(how.max_new_tokens, how.temperature, 1.0)
    end = int(renderer.tokenizer.eos_token_id)
    ends = end_tokens(model.generation_config, renderer)
    costs = [how.samples * (len(ids) + how.max_new_tokens) for ids in questions]
    critiques: list[list[tuple[int, ...]]] = [[] for _ in questions]
    for batch in plan_batches(costs, budget, padding_allowance=budget):
        written = generate(model, [questions[i] for i in batch], sampling, samples=how.samples, ends=ends, seed=seed)
        for i, samples in zip(batch, written, strict=True):
            critiques[i] = [(*sample.ids, end) for sample in samples]
    return critiques


class CritiqueScorer(ScalarReader, PackedScorer):
    """Scores single responses; `uncertainty` is the deviation over the critiques, where there are several."""

    seed = 0

    def check(self, name: str) -> None:
        super().check(name)
        if self.spec.critique is None or not hasattr(self.model, HEAD):
            raise BadInputError(f"{name} has no reward head that reads critiques")
        if self.spec.critique.question != question_hash():
            raise BadInputError(f"{name} was trained with another question for its critiques than this version has")

    @property
    def how(self) -> Critique:
        assert self.spec.critique is not None  # checked
        return self.spec.critique

    @property
    def score_identity(self) -> str | None:
        return f"{super().score_identity} {self.how} {self.seed}"

    @classmethod
    def load(cls, config: ModelConfig, loader: "ModelLoader | None" = None) -> Self:
        """Raises as other scalar models, and BadInputError for a folder without the head's weights."""
        import torch
        from safetensors import safe_open

        name, device = config.reference, pick_device(config.device)
        tokenizer = load_tokenizer(name)
        spec = spec_of(name, template_hash=lambda: Renderer(tokenizer, max_length=UNLIMITED).template_hash)
        require_parity(config, spec)
        with quiet_transformers():
            model = load_causal_lm(name, tokenizer, dtype=pick_dtype(device, config.dtype), device=device)
        weight = None
        for path in sorted(Path(resolve_model(name)).glob("*.safetensors")):
            with safe_open(path, "pt") as tensors:
                if f"{HEAD}.weight" in tensors.keys():  # noqa: SIM118  # it is no mapping
                    weight = tensors.get_tensor(f"{HEAD}.weight")
        if weight is None:
            raise BadInputError(f"{name} holds no weights of a reward head ({HEAD}.weight)")
        head = torch.nn.Linear(weight.shape[1], 1, bias=False)
        head.weight = torch.nn.Parameter(weight.float())
        model.add_module(HEAD, head.to(device))
        return cls.of_model(model, tokenizer, spec, config)

    def head(self, states: "torch.Tensor") -> "torch.Tensor":
        return head_outputs(getattr(self.model, HEAD), states)

    def question(self, item: ScoreItem) -> tuple[int, ...] | ScoreFailure:
        """The tokens that a critique continues; a conversation that does not fit with it is not cut."""
        read = self.spoken(item)
        if isinstance(read, ScoreFailure):
            return read
        if isinstance(encoded := self.encode(read), ScoreFailure):
            return encoded
        unlimited = Renderer(self.renderer.tokenizer, max_length=UNLIMITED)
        ids = unlimited.encode(critique_question(read.prompt, read.response)).ids
        if (room := self.renderer.max_length - self.how.max_new_tokens - 1) < len(ids):
            return self.failure("too_long", f"response and question have {len(ids)} tokens; {room} fit")
        return ids

    def reading(self, ids: tuple[int, ...]) -> Reading:
        """A conversation with its critique, read at its end."""
        return Reading(Encoded(ids, 0), (len(ids) - 1,))

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. The parts are the rewards after each critique."""
        with self._lock:
            questions = [self.question(item) for item in items]
            good = [question for question in questions if not isinstance(question, ScoreFailure)]
            written = write_critiques(
                self.model, self.renderer, good, self.how, seed=self.seed, budget=self.token_budget
            )
            rows = [(*ids, *critique) for ids, each in zip(good, written, strict=True) for critique in each]
            outputs = iter(self.outputs([self.reading(row) for row in rows]))
        results: list[ScoreResult] = []
        for question in questions:
            if isinstance(question, ScoreFailure):
                results.append(question)
                continue
            read_outputs = [next(outputs) for _ in range(self.how.samples)]
            failed = next((output for output in read_outputs if isinstance(output, ScoreFailure)), None)
            rewards = [self.reward(output) for output in read_outputs if not isinstance(output, ScoreFailure)]
            results.append(failed or self._score(len(question), rewards))
            on_progress(1)
        on_progress(len(items) - len(good))
        return results

    def _score(self, tokens: int, rewards: Sequence[float]) -> ScoreResult:
        score = self.result(Encoded((0,) * tokens, 0), statistics.fmean(rewards))
        if not isinstance(score, Score) or len(rewards) < 2:
            return score
        parts = tuple(ScorePart(f"{CRITIQUE}{n}", reward, reward) for n, reward in enumerate(rewards))
        return replace(score, parts=parts, uncertainty=statistics.stdev(rewards))

    def critiques(self, items: Sequence[ScoreItem]) -> list[list[str] | ScoreFailure]:
        """The texts that the rewards are read after."""
        with self._lock:
            questions = [self.question(item) for item in items]
            good = [question for question in questions if not isinstance(question, ScoreFailure)]
            written = iter(write_critiques(self.model, self.renderer, good, self.how, seed=self.seed))
        decode = self.renderer.tokenizer.decode
        return [
            question
            if isinstance(question, ScoreFailure)
            else [str(decode(list(ids), skip_special_tokens=True)).strip() for ids in next(written)]
            for question in questions
        ]
