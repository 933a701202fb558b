"""`assay serve-chat`: OpenAI's client gets the model's answer, nobody does without a key, Ctrl-C ends it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_command import ForkedCommand
from openai import AuthenticationError, BadRequestError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionUserMessageParam

from assay.domain import Message
from assay_serving.chat.generation import ChatModel

KEY = "system-test-key"
QUESTION = "Say something."


@pytest.fixture(scope="module")
def command(tiny_principle_base: Path) -> Iterator[ForkedCommand]:
    options = ("--port", "0", "--device", "cpu", "--api-key", KEY, "--name", "speaker", "--json")
    running = ForkedCommand("serve-chat", "--model", tiny_principle_base, *options)
    try:
        running.until(lambda: '"url"' in running.output())
        yield running
    finally:
        running.kill()


def announced(command: ForkedCommand) -> dict[str, str]:
    line = next(line for line in command.output().splitlines() if line.startswith("{"))
    found: dict[str, str] = json.loads(line)
    return found


def ask(command: ForkedCommand, *questions: str, key: str = KEY) -> ChatCompletion:
    messages: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": text} for text in questions]
    with OpenAI(base_url=f"{announced(command)['url']}/v1", api_key=key, max_retries=0) as client:
        return client.chat.completions.create(model="speaker", messages=messages, max_tokens=12, temperature=0.0)


def test_openais_client_gets_the_models_answer(command: ForkedCommand, tiny_principle_base: Path) -> None:
    own = ChatModel.load(str(tiny_principle_base), device="cpu", served_as="speaker")
    assert (announced(command)["model"], announced(command)["version"]) == ("speaker", own.version)
    reply = ask(command, QUESTION)
    expected = own.complete([Message("user", QUESTION)], max_tokens=12, temperature=0.0)
    assert expected.text
    assert reply.choices[0].message.content == expected.text
    assert reply.usage is not None
    assert 0 < reply.usage.completion_tokens <= 12


def test_nobody_is_answered_without_the_key_or_a_question(command: ForkedCommand) -> None:
    with pytest.raises(AuthenticationError):
        ask(command, QUESTION, key="another")
    with pytest.raises(BadRequestError):
        ask(command)


def test_ctrl_c_ends_it(command: ForkedCommand) -> None:
    os.kill(command.pid, signal.SIGINT)
    assert command.wait() in (0, 130), command.output()
    assert "Traceback" not in command.output()
