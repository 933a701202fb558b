"""The chat client against the scripted endpoint: what is retried, what is not, and how many requests run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from assay.errors import BadInputError
from assay.http.running import running_app
from assay_serving.chat.app import create_chat_app
from assay_serving.chat.client import ChatClient, ChatEndpoint, ChatResult, Post
from assay_serving.chat.scripted import Fault, ReceivedRequest, ScriptedChat, always, once


def scripted(**settings: Any) -> ScriptedChat[ReceivedRequest]:
    return ScriptedChat(lambda request: f"answer {request.number}", **settings)


def send_all(chat: ScriptedChat[ReceivedRequest], count: int = 1, **settings: Any) -> list[ChatResult]:
    async def send() -> list[ChatResult]:
        async with ChatClient(ChatEndpoint(f"{url}/v1", "fake", **settings)) as client:

            def attempt(number: int) -> Callable[[Post], Any]:
                messages = [{"role": "user", "content": f"question {number}"}]
                return lambda post: post({"model": "fake", "messages": messages})

            async def one(number: int) -> ChatResult:
                async with client.room:
                    return await client.send(attempt(number))

            return list(await asyncio.gather(*(one(number) for number in range(count))))

    with running_app(create_chat_app(chat)) as url:
        return asyncio.run(send())


@pytest.mark.parametrize("fault", ["429", "500", "503", "reset", "broken_body"])
def test_what_passes_is_tried_again(fault: Fault) -> None:
    chat = scripted(faults=once(fault))
    (result,) = send_all(chat, retries=2)
    assert result.outcome == "answered"
    assert result.payload["choices"][0]["message"]["content"] == "answer 1"
    assert len(chat.requests) == 2


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("401", "fatal"), ("quota", "no_quota"), ("400", "rejected"), ("too_long", "too_long")],
)
def test_what_would_fail_again_is_not(fault: Fault, outcome: str) -> None:
    chat = scripted(faults=always(fault))
    (result,) = send_all(chat)
    assert (result.outcome, len(chat.requests)) == (outcome, 1)
    assert result.error is not None
    assert result.error.startswith("HTTP 4")


@pytest.mark.slow
@pytest.mark.parametrize(("retry", "requests"), [(False, 1), (True, 2)])
def test_a_request_that_timed_out_is_sent_again_only_where_that_is_wanted(
    retry: bool, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []  # counted here: on a busy machine the server may not have it before the time is up
    post = ChatClient.post

    def counted(client: ChatClient, body: Any) -> Any:
        sent.append(body)
        return post(client, body)

    monkeypatch.setattr(ChatClient, "post", counted)
    (result,) = send_all(scripted(faults=always("slow"), slow_s=3.0), retries=1, timeout=0.2, retry_timeouts=retry)
    assert (result.outcome, len(sent)) == ("timeout", requests)


def test_a_server_that_asks_for_a_long_pause_is_given_up() -> None:
    chat = scripted(faults=always("429"), retry_after="3600")
    (result,) = send_all(chat, longest_wait=0.05)
    assert (result.outcome, result.retry_after, len(chat.requests)) == ("rate_limited", 3600.0, 1)


def test_requests_at_once_are_bounded() -> None:
    chat = scripted(delay_s=0.2)
    assert {result.outcome for result in send_all(chat, 12, concurrency=3)} == {"answered"}
    assert 1 < chat.most_at_once <= 3


def test_settings_are_checked() -> None:
    for settings in ({"base_url": "nowhere"}, {"concurrency": 0}, {"retries": -1}, {"longest_wait": 0}):
        with pytest.raises(BadInputError):
            ChatEndpoint(**{"base_url": "http://x/v1", "model": "m"} | settings)
