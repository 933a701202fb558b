"""A causal language model on this machine as a judge's writer, by transformers.

Covers: loading with the spec's checks, batches within a token budget, reading the labels' log-probs at the judgement
token. Leaves out: what a verdict is worth (`engine`, `pairwise`), training.

The log-probs are read in a second pass over the model's own question and reasoning, with the final line up to the
label in its standard tokens: at temperature 1 whatever the drawing's, and at a known position. The judgement token is
the first one in which the labels differ.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from assay.conversation import check_unicode
from assay.domain import Prompt
from assay.errors import BackendError, BadInputError
from assay.models.devices import free_memory, is_out_of_memory, pick_device, pick_dtype
from assay.models.loading import load_causal_lm, load_tokenizer, resolve_model
from assay.models.renderer import Renderer
from assay.models.spec import Judging, RewardModelSpec, weights_digest
from assay.progress import Advance, silent
from assay.score import ScoreFailure
from assay_serving.batching import plan_batches
from assay_serving.generative.answers import Answer
from assay_serving.generative.generation import Drawing, Sampled, generate, next_logp
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.generative.verdict import Verdict, read_verdict
from assay_serving.packed_engine import default_name, for_scoring, require_parity
from assay_serving.scorer import ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKEN_BUDGET = 16384  #: rows x (prompt + longest answer) generated at once: bounds the cache, changes no answer
_UNLIMITED = 1 << 30
_LEAST = -100.0  # log-prob where nothing is left: finite, as rewards must be


@dataclass
class LocalWriter:
    """A loaded model. Safe to call from several threads: they take turns."""

    repeatable: ClassVar[bool] = True  #: the same question, settings and seed give the same answers
    model: PreTrainedModel
    renderer: Renderer
    info: ModelInfo
    token_budget: int = TOKEN_BUDGET

    def __post_init__(self) -> None:
        self.model.eval()  # type: ignore[no-untyped-call]
        # A question that does not fit is a failure: the renderer's own cut would take its beginning away.
        self.renderer = Renderer(self.renderer.tokenizer, max_length=_UNLIMITED)
        self._lock = threading.Lock()
        own = getattr(self.model.generation_config, "eos_token_id", None)
        ends = own if isinstance(own, list) else [own]
        self._ends = sorted({int(e) for e in [*ends, self.renderer.tokenizer.eos_token_id] if e is not None})
        self.context = int(getattr(self.model.config, "max_position_embeddings", 0) or _UNLIMITED)

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        return self._fits(len(self._ids(prompt)), judging)

    def _fits(self, tokens: int, judging: Judging) -> bool:
        return tokens <= self.info.max_length and tokens + judging.max_new_tokens <= self.context

    def answer(
        self,
        asked: Sequence[Prompt],
        form: JudgeFormat,
        judging: Judging,
        *,
        seed: int = 0,
        on_progress: Advance = silent,
    ) -> list[list[Answer] | ScoreFailure]:
        """See `Writer.answer`. Failure codes: bad_input, too_long, backend (memory)."""
        results: list[list[Answer] | ScoreFailure | None] = [None] * len(asked)
        prompts: dict[int, tuple[int, ...]] = {}
        for place, prompt in enumerate(asked):
            try:
                for message in prompt:
                    check_unicode(message.content, "prompt")
                ids = self._ids(prompt)
            except BadInputError as error:
                results[place] = self._failure("bad_input", str(error))
                continue
            if self._fits(len(ids), judging):
                prompts[place] = ids
            else:
                limit = min(self.info.max_length, self.context - judging.max_new_tokens)
                results[place] = self._failure("too_long", f"the question has {len(ids)} tokens; {limit} fit")
        on_progress(len(asked) - len(prompts))
        places = list(prompts)
        costs = [judging.samples * (len(prompts[place]) + judging.max_new_tokens) for place in places]
        # Padding costs a token a step of the cache only: wide batches matter more than even ones.
        for batch in plan_batches(costs, self.token_budget, padding_allowance=self.token_budget):
            chosen = [places[i] for i in batch]
            with self._lock:
                found = self._answers([prompts[place] for place in chosen], form, judging, seed)
            for place, answers in zip(chosen, found, strict=True):
                results[place] = answers
            on_progress(len(chosen))
        return [result for result in results if result is not None]

    def label_logps(
        self, prompts: Sequence[Prompt], texts: Sequence[str], form: JudgeFormat
    ) -> list[dict[str, float] | None]:
        """Log-probs of the labels after given answers (whole, with their final line); None where an answer has no
        verdict. What parity checks compare: the same texts under two models."""
        found: list[dict[str, float] | None] = [None] * len(texts)
        waiting: dict[int, list[int]] = {}
        for place, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            verdict = read_verdict(text, form.labels)
            if isinstance(verdict, Verdict):
                waiting[place] = [*self._ids(prompt), *self._kept(tuple(self._plain_ids(text)), text, verdict)]
        with self._lock:
            for place, logp in zip(waiting, self._all_label_logps(list(waiting.values()), form), strict=True):
                found[place] = logp
        return found

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self.renderer.encode(prompt).ids

    def _answers(
        self, prompts: Sequence[tuple[int, ...]], form: JudgeFormat, judging: Judging, seed: int
    ) -> Sequence[list[Answer] | ScoreFailure]:
        """One batch; halved where the memory does not hold it."""
        try:
            return self._batch(prompts, form, judging, seed)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        free_memory(self.model.device)
        if len(prompts) == 1:
            return [self._failure("backend", f"out of memory on a question of {len(prompts[0])} tokens")]
        middle = len(prompts) // 2
        return [
            *self._answers(prompts[:middle], form, judging, seed),
            *self._answers(prompts[middle:], form, judging, seed),
        ]

    def _batch(
        self, prompts: Sequence[tuple[int, ...]], form: JudgeFormat, judging: Judging, seed: int
    ) -> list[list[Answer] | ScoreFailure]:
        drawing = Drawing(judging.max_new_tokens, judging.temperature, judging.top_p)
        made = generate(self.model, prompts, drawing, samples=judging.samples, ends=self._ends, seed=seed)
        answers: list[list[Answer]] = []
        waiting: list[tuple[int, int, list[int]]] = []
        for number, (prompt, samples) in enumerate(zip(prompts, made, strict=True)):
            read = [self._read(sample, len(prompt), form) for sample in samples]
            for place, (sample, answer) in enumerate(zip(samples, read, strict=True)):
                if isinstance(answer.verdict, Verdict):
                    kept = self._kept(sample.ids, answer.text, answer.verdict)
                    waiting.append((number, place, [*prompt, *kept]))
            answers.append(read)
        logps = self._all_label_logps([row for *_, row in waiting], form)
        for (number, place, _), logp in zip(waiting, logps, strict=True):
            answers[number][place] = replace(answers[number][place], logp=logp)
        return list(answers)

    def _all_label_logps(self, before: Sequence[Sequence[int]], form: JudgeFormat) -> list[dict[str, float]]:
        """`_label_logps` of any number of contexts, within the token budget."""
        at_once = max(1, self.token_budget // max((len(row) for row in before), default=1))
        parts = [self._label_logps(before[i : i + at_once], form) for i in range(0, len(before), at_once)]
        return [logp for part in parts for logp in part]

    def _read(self, sample: Sampled, tokens_in: int, form: JudgeFormat) -> Answer:
        text = self._text(sample.ids)
        verdict = read_verdict(text, form.labels, ended=sample.ended)
        return Answer(text, sample.ended, tokens_in, len(sample.ids) + sample.ended, verdict)

    def _text(self, ids: Sequence[int]) -> str:
        made = self.renderer.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(made)

    def _kept(self, ids: Sequence[int], text: str, verdict: Verdict) -> list[int]:
        """The answer's own tokens before the final line, and what of the text before it they do not cover."""
        start, end = verdict.line_start, len(ids)
        while end and not (len(covered := self._text(ids[:end])) <= start and text.startswith(covered)):
            end -= 1
        rest = text[len(self._text(ids[:end])) if end else 0 : start]
        return [*ids[:end], *(self._plain_ids(rest) if rest else [])]

    def _label_logps(self, before: Sequence[Sequence[int]], form: JudgeFormat) -> list[dict[str, float]]:
        """Log-prob of each label after contexts that end where the final line begins."""
        tails = {label: self._line_ids(form.final_line(label)) for label in form.labels}
        found: list[dict[str, float]] = [{} for _ in before]
        for context, branches in _forks(tails):
            logp = next_logp(self.model, [[*row, *context] for row in before])
            columns = {token: logp[:, token].tolist() for token in branches}
            for row, labels in enumerate(found):
                for token, below in branches.items():
                    for label in below:
                        labels[label] = labels.get(label, 0.0) + columns[token][row]
                # A label that ends where longer ones go on ("1", "10") has what they leave.
                left = 1.0 - sum(math.exp(columns[token][row]) for token in branches)
                for label, tail in tails.items():
                    if len(tail) == len(context) and tuple(tail) == context:
                        labels[label] = labels.get(label, 0.0) + (math.log(left) if left > 0 else _LEAST)
        return found

    def _line_ids(self, line: str) -> list[int]:
        """Tokens of a line that begins after a line feed."""
        feed, whole = self._plain_ids("\n"), self._plain_ids("\n" + line)
        return whole[len(feed) :] if whole[: len(feed)] == feed else self._plain_ids(line)

    def _plain_ids(self, text: str) -> list[int]:
        return list(self.renderer.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self.info.name)

    @classmethod
    def load(
        cls,
        name: str,
        *,
        judging: Judging | None = None,
        served_as: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        max_length: int | None = None,
        token_budget: int | None = None,
        allow_failed_parity: bool = False,
    ) -> tuple[LocalWriter, RewardModelSpec]:
        """A model and its spec. `judging`: how to ask a plain language model, or instead of the spec's settings.

        Raises BadInputError for a model of another kind, one that failed its parity check, or a plain language model
        without `judging`; BackendError where the chat template or the question is not the one it was trained with.
        """
        chosen = pick_device(device)
        tokenizer = load_tokenizer(name)
        source = Path(resolve_model(name))
        spec = RewardModelSpec.read(source) if source.is_dir() else None
        if spec is not None and (spec.kind != "generative" or spec.judging is None):
            raise BadInputError(f"{name} is a {spec.kind} reward model, not a generative one")
        if spec is None and judging is None:
            raise BadInputError(f"{name} has no spec that says how it judges; name a format")
        model = load_causal_lm(name, tokenizer, dtype=pick_dtype(chosen, dtype), device=chosen)
        for_scoring(model)
        renderer = Renderer(tokenizer, max_length=_UNLIMITED)
        if spec is None:
            limit = int(getattr(model.config, "max_position_embeddings", 0) or 4096)
            own = weights_digest(source) if source.is_dir() else str(getattr(model.config, "_commit_hash", "unknown"))
            spec = RewardModelSpec("generative", name, renderer.template_hash, limit, own, principles=True)
        elif (found := weights_digest(source)) != spec.version:
            raise BadInputError(f"{name} is not the checkpoint its spec describes: its files have version {found}")
        spec = replace(spec, judging=judging or spec.judging)
        check_spec(name, spec, renderer, allow_failed_parity=allow_failed_parity)
        info = info_of(served_as or default_name(name), spec, model)
        info = replace(info, max_length=min(info.max_length, max_length or info.max_length))
        if token_budget is not None and token_budget < 1:
            raise BadInputError(f"must be positive, not {token_budget}", field="token_budget")
        return cls(model, renderer, info, token_budget or TOKEN_BUDGET), spec


def check_spec(name: str, spec: RewardModelSpec, renderer: Renderer, *, allow_failed_parity: bool = False) -> None:
    """Raises BadInputError for a failed parity, BackendError for another template than the model was trained with."""
    require_parity(name, spec, allowed=allow_failed_parity)
    if spec.template_hash != renderer.template_hash:
        raise BackendError(
            f"{name} was trained with chat template {spec.template_hash}, "
            f"its tokenizer now gives {renderer.template_hash}: its scores would mean nothing"
        )
    assert spec.judging is not None
    form = format_named(spec.judging.format)
    if spec.judging.template != form.hash:
        raise BackendError(
            f"{name} was trained with judge question {spec.judging.template}, this Assay asks {form.hash}: "
            "its verdicts would mean nothing"
        )


def info_of(name: str, spec: RewardModelSpec, model: Any) -> ModelInfo:
    """The description of a generative model. Its template hash covers the question and how it is sampled."""
    import hashlib

    judging = spec.judging
    asked = hashlib.sha256(f"{spec.template_hash}\x1f{judging}".encode()).hexdigest()[:16]
    return ModelInfo(
        name=name,
        version=spec.version,
        kind="generative",
        template_hash=asked,
        max_length=spec.trained_length,
        calibrated=spec.calibration is not None,
        parity=spec.parity,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        attention=str(getattr(model.config, "_attn_implementation", "") or ""),
        calibration=spec.calibration.id if spec.calibration is not None else None,
        curve=spec.calibration.curve if spec.calibration is not None else None,
    )


def _forks(tails: dict[str, list[int]]) -> Iterator[tuple[tuple[int, ...], dict[int, list[str]]]]:
    """Where the labels' tokens part: (what comes before, next token -> labels that go on with it)."""
    contexts: list[tuple[int, ...]] = [()]
    while contexts:
        context = contexts.pop()
        branches: dict[int, list[str]] = {}
        ending = 0
        for label, tail in tails.items():
            if tuple(tail[: len(context)]) == context:
                if len(tail) > len(context):
                    branches.setdefault(tail[len(context)], []).append(label)
                else:
                    ending += 1
        only = len(branches) == 1 and not ending
        if only:  # all go on with the same token: nothing is decided here
            contexts.append((*context, next(iter(branches))))
            continue
        yield context, branches
        contexts += [(*context, token) for token, below in branches.items() if len(below) > 1]
