"""A model behind an OpenAI-compatible endpoint (vLLM, SGLang, ...) as a judge's writer, by chat completions.

Covers: several choices a call, log-probs of the label at its position in the answer (of our own formats; judge profiles
are read by what they state), images as data URLs, calls of tools in OpenAI's form, typed failures. An endpoint that
reads text alone refuses images itself. Leaves out: HTTP, retries, concurrency
(`assay_serving.chat.client`); curation's judges with budgets and records (`assay_pipelines.judging`).

Verdicts are read by the same rule as a local model's. The judgement token is the one that holds the first character of
the label; its alternatives are those of the listed tokens that differ from it in the label alone. A label that the
endpoint did not list is very unlikely, but neither impossible nor an error: its log-prob is the bound that the list
implies: at most the last one listed, and at most the remaining probability.
"""

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.conversation.message import images_of
from assay.domain import Prompt
from assay.errors import BackendError, BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay.store.media import MediaFolder
from assay_serving.chat.client import ANSWERED, ChatClient, ChatEndpoint, ChatResult
from assay_serving.chat.sent_images import sent_messages
from assay_serving.generative.answers import JudgeSample, with_turns
from assay_serving.generative.generation import stream_seed
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.generative.verdict import JudgeVerdict
from assay_serving.model_reference import media_of
from assay_serving.scorer import ModelInfo
from assay_serving.tools.calls import calls_of
from assay_serving.tools.kind import granted
from assay_serving.tools.tool import ToolCall, ToolResult, ToolTurn, response_text
from assay_serving.tools.toolbox import toolbox

TOP_LOGPROBS = 20  #: the most that OpenAI's form allows
LEAST = -20.0  #: log-prob that no bound goes below: lists are rounded


@dataclass
class RemoteWriter:
    """A `Writer`. Not to be called inside an event loop of the same thread."""

    endpoint: ChatEndpoint
    info: ModelInfo
    media: Callable[[], MediaFolder | None] = field(default_factory=lambda: media_of(None))  #: where images are

    @classmethod
    def open(
        cls,
        endpoint: ChatEndpoint,
        judging: Judging,
        media: Callable[[], MediaFolder | None] | None = None,
        *,
        tools: Sequence[str] = (),
    ) -> "tuple[RemoteWriter, RewardModelSpec]":
        """A writer and the spec of what it is. Which weights the endpoint runs under that name is unknown: the version
        says so. `tools`: those that the caller names (`granted`)."""
        judging = replace(judging, tools=granted(judging.tools, tools))
        if judging.template != format_named(judging.format).hash:
            raise BadInputError(f"this version of Assay has no question {judging.template}", field="template")
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
        return cls(endpoint, info, media or media_of(None)), spec

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        """Always: the endpoint itself refuses a question that is too long."""
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

        async def answer_all() -> list[list[JudgeSample] | ScoreFailure]:
            async with ChatClient(self.endpoint) as client:

                async def one(prompt: Prompt) -> list[JudgeSample] | ScoreFailure:
                    try:
                        body = self._body(prompt, form, judging, seed)
                    except BadInputError as error:
                        return self._failure("bad_input", str(error))
                    async with client.room:
                        if judging.tools:
                            answers = await self._conversations(client, body, form, judging)
                        else:
                            result = await client.send(lambda post: post(body))
                            answers = self._samples(result, form, judging)
                    on_progress(1)
                    return answers

                return list(await asyncio.gather(*(one(prompt) for prompt in questions)))

        return asyncio.run(answer_all())

    def _body(self, prompt: Prompt, form: JudgeFormat, judging: Judging, seed: int) -> dict[str, Any]:
        text = "\x1f".join(f"{message.role}\x1e{message.content}" for message in prompt)
        images = images_of(prompt)
        return {
            "model": self.endpoint.model,
            "messages": sent_messages([message.to_dict() for message in prompt], self.media() if images else None),
            "max_tokens": judging.max_new_tokens,
            "temperature": judging.temperature,
            "top_p": judging.top_p,
            "seed": stream_seed(list(text.encode("utf-8", "replace")), 0, seed) % (1 << 31),
            **({"logprobs": True, "top_logprobs": TOP_LOGPROBS} if form.has_final_line else {}),
            **({"n": judging.samples} if judging.samples > 1 else {}),
        }

    async def _conversations(
        self, client: ChatClient, body: Mapping[str, Any], form: JudgeFormat, judging: Judging
    ) -> list[JudgeSample] | ScoreFailure:
        """Each sample is a conversation of its own, at a seed of its own."""
        answers: list[JudgeSample] = []
        for number in range(judging.samples):
            answer = await self._converse(client, {**body, "n": 1, "seed": body["seed"] + number}, form, judging)
            if isinstance(answer, ScoreFailure):
                return answer
            answers.append(answer)
        return answers

    async def _converse(
        self, client: ChatClient, body: Mapping[str, Any], form: JudgeFormat, judging: Judging
    ) -> JudgeSample | ScoreFailure:
        box, turns, tokens_out = toolbox(judging.tools), list[ToolTurn](), 0
        messages = list(body["messages"])
        while True:
            request = {**body, "messages": messages, "tools": box.functions}
            result = await client.send(lambda post, sent=request: post(sent))  # type: ignore[misc]
            samples = self._samples(result, form, replace(judging, samples=1))
            if isinstance(samples, ScoreFailure):
                return samples
            message = result.payload["choices"][0]["message"]
            calls = calls_of(message)
            if not calls or not samples[0].ended or len(turns) == judging.tool_rounds:
                return with_turns(samples[0], turns, judging, tokens_out=tokens_out)
            try:
                results = await asyncio.to_thread(box.run, calls, turns)
            except BackendError as error:
                return self._failure("backend", str(error))
            turns.append(ToolTurn(_written(message, calls), tuple(results)))
            tokens_out += samples[0].tokens_out
            messages += _answered(message, results)

    def _samples(self, result: ChatResult, form: JudgeFormat, judging: Judging) -> list[JudgeSample] | ScoreFailure:
        if result.outcome != ANSWERED:
            code = "bad_input" if result.status in (400, 413, 422) else "backend"
            return self._failure("timeout" if result.outcome == "timeout" else code, result.error or result.outcome)
        try:
            reply = result.payload
            usage = reply.get("usage") or {}
            tokens_in, tokens_out = (int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
            each = tokens_out // max(1, len(reply["choices"]))
            samples = [read_choice(choice, form, tokens_in, each) for choice in reply["choices"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return self._failure("backend", f"not a chat completion: {type(error).__name__} {error}")
        if len(samples) != judging.samples:
            return self._failure("backend", f"{len(samples)} choices where {judging.samples} were requested")
        return samples

    def _failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message, self.info.name)


def endpoint_of(base_url: str, model: str | None, *, api_key: str | None = None) -> ChatEndpoint:
    """Raises BadInputError without a model. Default of the key: OPENAI_API_KEY."""
    if not model:
        raise BadInputError("name the endpoint's model", field="--model")
    return ChatEndpoint(base_url, model, api_key or os.environ.get("OPENAI_API_KEY"))


def read_choice(choice: Mapping[str, Any], form: JudgeFormat, tokens_in: int, tokens_out: int = 0) -> JudgeSample:
    """One choice of a chat completion. `tokens_out`: its length, where it does not list its tokens. Raises KeyError,
    TypeError or ValueError for an invalid one."""
    message = choice["message"]
    text = (message.get("content") if message.get("tool_calls") else message["content"]) or ""
    if not isinstance(text, str):
        raise TypeError("content is not text")
    ended = choice.get("finish_reason") in ("stop", "tool_calls")
    verdict = form.read(text, ended=ended)
    tokens: Sequence[Mapping[str, Any]] = (choice.get("logprobs") or {}).get("content") or ()
    logp = None
    if isinstance(verdict, JudgeVerdict) and tokens and form.has_final_line:
        logp = label_logps(tokens, text, verdict, form)
    return JudgeSample(text, ended, tokens_in, len(tokens) or tokens_out, verdict, logp)


def _written(message: Mapping[str, Any], calls: Sequence[ToolCall]) -> str:
    """A turn that calls tools as text."""
    content = str(message.get("content") or "")
    listed = [call.text for call in calls] if message.get("tool_calls") else []
    return "\n".join([*([content] if content else []), *listed])


def _answered(message: Mapping[str, Any], results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    """The turn and its results as the messages that follow; results of calls in text are a user's message."""
    if not message.get("tool_calls"):
        return [
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": response_text(results)},
        ]
    turn = {"role": "assistant", "content": message.get("content") or "", "tool_calls": message["tool_calls"]}
    return [turn, *({"role": "tool", "tool_call_id": r.call.call_id, "content": r.content} for r in results)]


def label_logps(
    tokens: Sequence[Mapping[str, Any]], text: str, verdict: JudgeVerdict, form: JudgeFormat
) -> dict[str, float] | None:
    """Log-probs of all labels at the judgement token, or their bounds; None where the tokens do not spell the text, or
    the labels differ only in more than one token (ratings beside "10").

    `tokens`: the choice's, each with `token`, `logprob` and `top_logprobs`.
    """
    at = verdict.line_start + len(form.final_line(""))
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
    return logp


def _own_beginnings(label: str, labels: Sequence[str]) -> list[str]:
    """Beginnings of a label that no other label has: a token that is one of them stands for this label."""
    other_labels = [other for other in labels if other != label]
    pieces = [label[:size] for size in range(1, len(label) + 1)]
    return [piece for piece in pieces if not any(other.startswith(piece) for other in other_labels)]


def _bound(listed: Sequence[float]) -> float:
    """The highest log-prob that an unlisted token can have."""
    remaining = 1.0 - math.fsum(map(math.exp, listed))
    return max(LEAST, min(min(listed), math.log(remaining) if remaining > 0 else LEAST))
