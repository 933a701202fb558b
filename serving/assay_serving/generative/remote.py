"""A model behind an OpenAI-compatible endpoint (vLLM, SGLang, ...) as a judge's writer, by chat completions.

Covers: several choices a call, log-probs of the label at its place in the answer, retries, bounded concurrency, typed
failures. Leaves out: curation's judges with budgets and records (`assay_pipelines.judging`), embeddings of endpoints.

Verdicts are read by the same rule as a local model's. The judgement token is the one that holds the first character of
the label; its alternatives are those of the listed tokens that differ from it in the label alone. A label that the
endpoint did not list is very unlikely, not impossible and no error: its log-prob is taken as the bound that the list
gives (no likelier than the last one listed, nor than all that is left), and it is counted as `bounded`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from assay.domain import Prompt
from assay.errors import BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, RetryPolicy, retry_after_of
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.generation import stream_seed
from assay_serving.generative.templates import DELIMITER, JudgeFormat, format_named
from assay_serving.generative.verdict import JudgeVerdict, read_verdict
from assay_serving.scorer import ModelInfo

TOP_LOGPROBS = 20  #: the most that OpenAI's form allows
LEAST = -20.0  #: log-prob that no bound goes below: lists are rounded


@dataclass(frozen=True)
class JudgeEndpoint:
    """`base_url` ends in /v1. `api_key`: sent as bearer token. `timeout`: seconds of one call."""

    base_url: str
    model: str
    api_key: str | None = None
    concurrency: int = 8
    timeout: float = 300.0
    retries: int = 4
    top_logprobs: int = TOP_LOGPROBS

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadInputError(f"not an http(s) address: {self.base_url!r}", field="base_url")
        for name in ("concurrency", "timeout"):
            if getattr(self, name) <= 0:
                raise BadInputError(f"must be positive, not {getattr(self, name)}", field=name)
        if not 0 <= self.top_logprobs <= TOP_LOGPROBS:
            raise BadInputError(f"goes from 0 to {TOP_LOGPROBS}, not {self.top_logprobs}", field="top_logprobs")


@dataclass
class RemoteWriter:
    """A context manager: leaving it closes its connections."""

    endpoint: JudgeEndpoint
    info: ModelInfo
    bounded: int = field(default=0, init=False)  #: labels whose log-prob was a bound, since it began

    def __post_init__(self) -> None:
        key = self.endpoint.api_key
        self._client = httpx.Client(
            base_url=self.endpoint.base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(self.endpoint.timeout, connect=10.0),
            limits=httpx.Limits(max_connections=self.endpoint.concurrency),
            trust_env=urlsplit(self.endpoint.base_url).hostname not in ("127.0.0.1", "::1", "localhost"),
        )
        self._lock = threading.Lock()

    @classmethod
    def open(cls, endpoint: JudgeEndpoint, judging: Judging) -> tuple[RemoteWriter, RewardModelSpec]:
        """A writer and the spec of what it is. What the endpoint runs under that name, only its operator knows: the
        version says so."""
        if judging.template != format_named(judging.format).hash:
            raise BadInputError(f"this Assay does not ask question {judging.template}", field="template")
        spec = RewardModelSpec(
            kind="generative",
            base=endpoint.model,
            template_hash=judging.template,
            trained_length=1 << 30,
            version=f"remote:{endpoint.model}",
            principles=True,
            judging=judging,
        )
        info = ModelInfo(
            name=endpoint.model,
            version=spec.version,
            kind="generative",
            template_hash=judging.template,
            max_length=spec.trained_length,
            calibrated=False,
            parity="unchecked",
            dtype="unknown",
            device="remote",
        )
        return cls(endpoint, info), spec

    def __enter__(self) -> RemoteWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        """Always: the endpoint knows its own limit, and says so."""
        return True

    def answer(
        self,
        questions: Sequence[Prompt],
        form: JudgeFormat,
        judging: Judging,
        *,
        seed: int = 0,
        on_progress: Advance = silent,
    ) -> list[list[JudgeSample] | ScoreFailure]:
        """See `Writer.answer`. Failure codes: timeout, backend, bad_input (the endpoint refuses the question)."""

        def one(prompt: Prompt) -> list[JudgeSample] | ScoreFailure:
            samples = self._ask(prompt, form, judging, seed)
            with self._lock:
                on_progress(1)
                if not isinstance(samples, ScoreFailure):
                    self.bounded += sum(len(answer.bounded) for answer in samples)
            return samples

        with ThreadPoolExecutor(self.endpoint.concurrency, thread_name_prefix="judge") as pool:
            return list(pool.map(one, questions))

    def _ask(self, prompt: Prompt, form: JudgeFormat, judging: Judging, seed: int) -> list[JudgeSample] | ScoreFailure:
        text = "\x1f".join(f"{message.role}\x1e{message.content}" for message in prompt)
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [message.to_dict() for message in prompt],
            "max_tokens": judging.max_new_tokens,
            "temperature": judging.temperature,
            "top_p": judging.top_p,
            "seed": stream_seed(list(text.encode("utf-8", "replace")), 0, seed) % (1 << 31),
        }
        if self.endpoint.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": self.endpoint.top_logprobs}
        if judging.samples > 1:
            body["n"] = judging.samples
        reply = self._post(body)
        if isinstance(reply, ScoreFailure):
            return reply
        try:
            tokens_in = int((reply.get("usage") or {}).get("prompt_tokens") or 0)
            answers = [read_choice(choice, form, tokens_in) for choice in reply["choices"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return self._failure("backend", f"not a chat completion: {type(error).__name__} {error}")
        if len(answers) != judging.samples:
            return self._failure("backend", f"{len(answers)} choices where {judging.samples} were asked for")
        return answers

    def _post(self, body: Mapping[str, Any]) -> dict[str, Any] | ScoreFailure:
        attempts = Attempts(RetryPolicy(retries=self.endpoint.retries))
        while True:
            retry_after = None
            try:
                response = self._client.post("chat/completions", json=body)
            except RETRYABLE_FAULTS as error:
                failure, again = self._failure("backend", f"{type(error).__name__}: {error}"), True
            except httpx.TimeoutException:
                return self._failure("timeout", f"no reply in {self.endpoint.timeout:g} s")
            except httpx.HTTPError as error:
                return self._failure("backend", f"{type(error).__name__}: {error}")
            else:
                if response.status_code == 200:
                    try:
                        reply = response.json()
                    except ValueError:
                        return self._failure("backend", "the reply is not JSON")
                    return reply if isinstance(reply, dict) else self._failure("backend", "the reply is no object")
                code = "bad_input" if response.status_code in (400, 413, 422) else "backend"
                failure = self._failure(code, f"status {response.status_code}: {response.text[:200]}")
                again, retry_after = response.status_code in RETRYABLE_STATUSES, retry_after_of(response)
            pause = attempts.next_pause(retryable=again, retry_after=retry_after)
            if pause is None:
                return failure
            time.sleep(pause)

    def _failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self.info.name)


def endpoint_of(base_url: str, model: str | None, *, api_key: str | None = None) -> JudgeEndpoint:
    """Raises BadInputError without a model. The key is OPENAI_API_KEY where none is given."""
    if not model:
        raise BadInputError("name the endpoint's model", field="--model")
    return JudgeEndpoint(base_url, model, api_key or os.environ.get("OPENAI_API_KEY"))


def read_choice(choice: Mapping[str, Any], form: JudgeFormat, tokens_in: int) -> JudgeSample:
    """One choice of a chat completion. Raises KeyError, TypeError or ValueError for what is none."""
    text = choice["message"]["content"] or ""
    if not isinstance(text, str):
        raise TypeError("content is no text")
    ended = choice.get("finish_reason") == "stop"
    verdict = read_verdict(text, form.labels, ended=ended)
    tokens: Sequence[Mapping[str, Any]] = (choice.get("logprobs") or {}).get("content") or ()
    logp, bounded = None, frozenset[str]()
    if isinstance(verdict, JudgeVerdict) and tokens:
        label_log_probs = label_logps(tokens, text, verdict, form)
        if label_log_probs is not None:
            logp, bounded = label_log_probs
    return JudgeSample(text, ended, tokens_in, len(tokens), verdict, logp, bounded)


def label_logps(
    tokens: Sequence[Mapping[str, Any]], text: str, verdict: JudgeVerdict, form: JudgeFormat
) -> tuple[dict[str, float], frozenset[str]] | None:
    """Log-probs of all labels at the judgement token, and which are bounds; None where the tokens do not spell the
    text, or the labels are told apart by more than one token (ratings beside "10").

    `tokens`: the choice's, each with `token`, `logprob` and `top_logprobs`.
    """
    at = verdict.line_start + len(DELIMITER) + 1  # one space
    spelled = [str(token["token"]) for token in tokens]
    joined = "".join(spelled)
    # An end token may be listed behind the text; some servers leave the text's first spaces out of its content.
    shift = joined.find(text)
    if shift < 0:
        return None
    index = start = 0
    for number, piece in enumerate(spelled):
        if start + len(piece) > at + shift:
            index = number
            break
        start += len(piece)
    else:
        return None
    lead = spelled[index][: at + shift - start]
    listed = {str(entry["token"]): float(entry["logprob"]) for entry in tokens[index].get("top_logprobs") or ()}
    listed[spelled[index]] = float(tokens[index]["logprob"])
    bound = _bound(list(listed.values()))
    logp: dict[str, float] = {}
    for label in form.labels:
        beginnings = _own_beginnings(label, form.labels)
        if not beginnings:
            return None
        log_probs = [listed[lead + piece] for piece in beginnings if lead + piece in listed]
        logp[label] = math.log(math.fsum(map(math.exp, log_probs))) if log_probs else bound
    bounded = {x for x in form.labels if not any(lead + piece in listed for piece in _own_beginnings(x, form.labels))}
    return logp, frozenset(bounded)


def _own_beginnings(label: str, labels: Sequence[str]) -> list[str]:
    """Beginnings of a label that no other label has: a token that is one of them stands for this label."""
    other_labels = [other for other in labels if other != label]
    pieces = [label[:size] for size in range(1, len(label) + 1)]
    return [piece for piece in pieces if not any(other.startswith(piece) for other in other_labels)]


def _bound(listed: Sequence[float]) -> float:
    """The log-prob that a token which is not listed cannot pass."""
    remaining = 1.0 - math.fsum(map(math.exp, listed))
    return max(LEAST, min(min(listed), math.log(remaining) if remaining > 0 else LEAST))
