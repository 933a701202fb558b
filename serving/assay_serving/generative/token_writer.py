"""What writers over token ids share, wherever the model runs: questions, verdicts, log-probs of the labels.

Covers: batches within a token budget, answers read, the labels' log-probs at the judgement token. Leaves out:
running the model: on this machine by transformers (`local`), by vLLM or on a server (`assay_serving.vllm`); rewards
(`engine`, `pairwise`).

The log-probs are read in a second pass over the model's own question and reasoning, with the final line up to the
label in its standard tokens: at temperature 1 whatever the sampling's, and at a known position. The judgement token is
the first one in which the labels differ.
"""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from assay.data.conversation import check_unicode
from assay.domain import Message, Prompt
from assay.errors import BadInputError, BusyError
from assay.models.chat.renderer import Renderer
from assay.models.spec import Judging
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_serving.chat.completion import Completion, TooLongError, cut_at
from assay_serving.engines.batching import plan_batches
from assay_serving.generative.answers import JudgeSample, with_turns
from assay_serving.generative.generation import Sampled, SamplingParams
from assay_serving.generative.templates import JudgeFormat
from assay_serving.generative.tool_rounds import Conversation, converse
from assay_serving.generative.verdict import JudgeVerdict
from assay_serving.scorer import UNLIMITED, ModelInfo
from assay_serving.tools.toolbox import toolbox
from assay_serving.tools.turns import offered

TOKEN_BUDGET = 16384  #: rows x (prompt + longest answer) generated at once: bounds the cache, changes no answer
_LEAST = -100.0  # log-prob where nothing is left: finite, as rewards must be


class TokenWriter(ABC):
    """A model that answers in token ids. Safe to call from several threads: they take turns."""

    repeatable: ClassVar[bool] = False  #: whether the same question, settings and seed give the same answers

    def __init__(self, renderer: Renderer, info: ModelInfo, *, context: int, token_budget: int = TOKEN_BUDGET) -> None:
        """`context`: tokens of question and answer that the model can hold."""
        # A question that does not fit is a failure: the renderer's own cut would take its beginning away.
        self.renderer = Renderer(renderer.tokenizer, max_length=UNLIMITED)
        self.info = info
        self.context = context
        self.token_budget = token_budget
        self._lock = threading.Lock()

    @abstractmethod
    def generate(
        self, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams, *, samples: int, seed: int
    ) -> Sequence[list[Sampled] | ScoreFailure]:
        """`samples` answers of each prompt."""

    @abstractmethod
    def next_logps(self, rows: Sequence[list[int]], tokens: Sequence[int]) -> Sequence[dict[int, float] | ScoreFailure]:
        """Log-probs of each of `tokens` after each row, at temperature 1."""

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        try:
            return self._fits(len(self._question_ids(prompt, judging)), judging)
        except BadInputError:
            return True  # `answer` refuses it, with the reason

    def _fits(self, tokens: int, judging: Judging) -> bool:
        return tokens <= self.info.max_length and tokens + judging.max_new_tokens <= self.context

    def answer(
        self,
        questions: Sequence[Prompt],
        form: JudgeFormat,
        judging: Judging,
        *,
        seed: int = 0,
        on_progress: Advance = silent,
    ) -> list[list[JudgeSample] | ScoreFailure]:
        """See `Writer.answer`. Failure codes: bad_input, too_long, backend (memory)."""
        results: list[list[JudgeSample] | ScoreFailure | None] = [None] * len(questions)
        prompts: dict[int, tuple[int, ...]] = {}
        for index, prompt in enumerate(questions):
            try:
                for message in prompt:
                    check_unicode(message.text, "prompt")
                ids = self._question_ids(prompt, judging)
            except BadInputError as error:
                results[index] = self._failure("bad_input", str(error))
                continue
            if self._fits(len(ids), judging):
                prompts[index] = ids
            else:
                limit = min(self.info.max_length, self.context - judging.max_new_tokens)
                results[index] = self._failure("too_long", f"the question has {len(ids)} tokens; {limit} fit")
        on_progress(len(questions) - len(prompts))
        indices = list(prompts)
        costs = [judging.samples * (len(prompts[index]) + judging.max_new_tokens) for index in indices]
        # Padding costs a token a step of the cache only: wide batches matter more than even ones.
        for batch in plan_batches(costs, self.token_budget, padding_allowance=self.token_budget):
            chosen = [indices[i] for i in batch]
            with self._lock:
                batch_answers = self._answers([prompts[index] for index in chosen], form, judging, seed)
            for index, answers in zip(chosen, batch_answers, strict=True):
                results[index] = answers
            on_progress(len(chosen))
        return [result for result in results if result is not None]

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float,
        seed: int,
        stop: Sequence[str] = (),
        max_seconds: float = math.inf,
    ) -> Completion:
        """The assistant's next turn in a conversation of any content. A stop string cuts the answer, not its cost.
        `max_seconds`: of generation by transformers; vLLM's is not cut.

        Raises TooLongError, and BadInputError where the template refuses the conversation.
        """
        for message in messages:
            check_unicode(message.text, "messages")
        ids = self._ids(tuple(messages))
        if len(ids) + max_tokens > self.context:
            raise TooLongError(
                f"{len(ids)} tokens and max_tokens {max_tokens} exceed the model's context length of {self.context}"
            )
        sampling = SamplingParams(max_tokens, temperature, top_p, max_seconds)
        with self._lock:
            [generated] = self.generate([ids], sampling, samples=1, seed=seed)
        if isinstance(generated, ScoreFailure):
            raise BusyError(generated.message)
        [sampled] = generated
        text, ended = cut_at(self._text(sampled.ids), stop, sampled.ended)
        return Completion(text, "stop" if ended else "length", len(ids), len(sampled.ids) + sampled.ended)

    def label_logps(
        self, prompts: Sequence[Prompt], texts: Sequence[str], form: JudgeFormat
    ) -> list[dict[str, float] | None]:
        """Log-probs of the labels after complete answers, with their final line; None where an answer has no verdict.
        Parity checks compare them for the same texts under two models."""
        log_probs: list[dict[str, float] | None] = [None] * len(texts)
        waiting: dict[int, list[int]] = {}
        for index, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            verdict = form.read(text)
            if isinstance(verdict, JudgeVerdict):
                waiting[index] = [*self._ids(prompt), *self._reasoning_ids(tuple(self._plain_ids(text)), text, verdict)]
        with self._lock:
            for index, logp in zip(waiting, self._all_label_logps(list(waiting.values()), form), strict=True):
                log_probs[index] = None if isinstance(logp, ScoreFailure) else logp
        return log_probs

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self.renderer.encode(prompt).ids

    def _question_ids(self, prompt: Prompt, judging: Judging) -> tuple[int, ...]:
        """With the tools that the judge may call."""
        tools = toolbox(judging.tools).definitions if judging.tools else ()
        return self._ids(offered(prompt, tools, self.renderer) if tools else prompt)

    def _answers(
        self, prompts: Sequence[tuple[int, ...]], form: JudgeFormat, judging: Judging, seed: int
    ) -> Sequence[list[JudgeSample] | ScoreFailure]:
        """One batch."""
        sampling = SamplingParams(judging.max_new_tokens, judging.temperature, judging.top_p)
        generated = self.generate(prompts, sampling, samples=judging.samples, seed=seed)
        conversations = [
            [] if isinstance(turns, ScoreFailure) else [Conversation(number, prompt, turn) for turn in turns]
            for number, (prompt, turns) in enumerate(zip(prompts, generated, strict=True))
        ]
        if judging.tools:
            converse(
                [one for samples in conversations for one in samples],
                judging,
                self.renderer,
                lambda rows, at: self.generate(rows, sampling, samples=1, seed=at),
                self._text,
                seed=seed,
                most=self.context,
            )
        results: list[list[JudgeSample] | ScoreFailure] = []
        waiting: list[tuple[int, int, list[int]]] = []
        for number, (turns, samples) in enumerate(zip(generated, conversations, strict=True)):
            last = [turns] if isinstance(turns, ScoreFailure) else [one.last for one in samples]
            if (failed := next((turn for turn in last if isinstance(turn, ScoreFailure)), None)) is not None:
                results.append(failed)
                continue
            read = [self._read(turn, len(prompts[number]), form) for turn in last if isinstance(turn, Sampled)]
            for index, (one, answer) in enumerate(zip(samples, read, strict=True)):
                if isinstance(answer.verdict, JudgeVerdict) and isinstance(one.last, Sampled) and form.has_final_line:
                    context = self._reasoning_ids(one.last.ids, answer.text, answer.verdict)
                    waiting.append((number, index, [*one.question, *one.before, *context]))
            results.append(read)
        logps = self._all_label_logps([row for *_, row in waiting], form)
        for (number, index, _), logp in zip(waiting, logps, strict=True):
            answers = results[number]
            if isinstance(logp, ScoreFailure):
                results[number] = logp
            elif not isinstance(answers, ScoreFailure):
                answers[index] = replace(answers[index], logp=logp)
        for answers, samples in zip(results, conversations, strict=True):
            if judging.tools and not isinstance(answers, ScoreFailure):
                pairs = list(zip(answers, samples, strict=True))
                answers[:] = [with_turns(a, one.turns, judging, tokens_out=one.tokens_out) for a, one in pairs]
        return results

    def _all_label_logps(self, before: Sequence[list[int]], form: JudgeFormat) -> list[dict[str, float] | ScoreFailure]:
        """`_label_logps` of any number of contexts, within the token budget."""
        at_once = max(1, self.token_budget // max((len(row) for row in before), default=1))
        parts = [self._label_logps(before[i : i + at_once], form) for i in range(0, len(before), at_once)]
        return [logp for part in parts for logp in part]

    def _read(self, sample: Sampled, tokens_in: int, form: JudgeFormat) -> JudgeSample:
        text = self._text(sample.ids)
        verdict = form.read(text, ended=sample.ended)
        return JudgeSample(text, sample.ended, tokens_in, len(sample.ids) + sample.ended, verdict)

    def _text(self, ids: Sequence[int]) -> str:
        text = self.renderer.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _reasoning_ids(self, ids: Sequence[int], text: str, verdict: JudgeVerdict) -> list[int]:
        """The answer's own tokens before the final line, and tokens of the text before it that they do not cover."""
        start, end = verdict.line_start, len(ids)
        while end and not (len(covered := self._text(ids[:end])) <= start and text.startswith(covered)):
            end -= 1
        remainder = text[len(self._text(ids[:end])) if end else 0 : start]
        return [*ids[:end], *(self._plain_ids(remainder) if remainder else [])]

    def _label_logps(self, before: Sequence[list[int]], form: JudgeFormat) -> list[dict[str, float] | ScoreFailure]:
        """Log-prob of each label after contexts that end where the final line begins."""
        tails = {label: self._line_ids(form.final_line(label)) for label in form.labels}
        log_probs: list[dict[str, float] | ScoreFailure] = [{} for _ in before]
        for context, branches in _branches(tails):
            logps = self.next_logps([[*row, *context] for row in before], list(branches))
            for row, (labels, logp) in enumerate(zip(log_probs, logps, strict=True)):
                if isinstance(labels, ScoreFailure):
                    continue
                if isinstance(logp, ScoreFailure):
                    log_probs[row] = logp
                    continue
                for token, below in branches.items():
                    for label in below:
                        labels[label] = labels.get(label, 0.0) + logp[token]
                # A label that is the beginning of longer ones ("1", "10") has the remaining probability.
                remaining = 1.0 - sum(math.exp(logp[token]) for token in branches)
                for label, tail in tails.items():
                    if len(tail) == len(context) and tuple(tail) == context:
                        labels[label] = labels.get(label, 0.0) + (math.log(remaining) if remaining > 0 else _LEAST)
        return log_probs

    def _line_ids(self, line: str) -> list[int]:
        """Tokens of a line that begins after a line feed."""
        feed, with_feed = self._plain_ids("\n"), self._plain_ids("\n" + line)
        return with_feed[len(feed) :] if with_feed[: len(feed)] == feed else self._plain_ids(line)

    def _plain_ids(self, text: str) -> list[int]:
        return list(self.renderer.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self.info.name)


def _branches(tails: dict[str, list[int]]) -> Iterator[tuple[tuple[int, ...], dict[int, list[str]]]]:
    """Where the labels' tokens diverge: (common beginning, next token -> labels that continue with it)."""
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
        if only:  # all continue with the same token: nothing is decided here
            contexts.append((*context, next(iter(branches))))
            continue
        yield context, branches
        contexts += [(*context, token) for token, below in branches.items() if len(below) > 1]
