"""Environments of other projects without their packages: one line that says what to install."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from assay.errors import BackendError
from assay_policy_training.plugins.environments.adapters.verifiers_endpoint import PolicyEndpoint
from assay_policy_training.recipe.loading import recipe_from_dict
from assay_serving.tools.tool import ToolCall


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("gymnasium", {"kind": "gymnasium", "id": "FrozenLake-v1"}),
        ("verifiers", {"kind": "verifiers", "taskset": "any"}),
    ],
    ids=["gymnasium", "verifiers"],
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, settings: Mapping[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"{package}.v1", raising=False)
    with pytest.raises(BackendError, match=f"pip install .?{package}"):
        recipe_from_dict({"name": "r", "environment": settings})


def test_an_agents_model_is_the_policy_as_long_as_the_conversation_grows() -> None:
    """Over HTTP, as verifiers' programs ask: new messages only, calls with ids, a full context as clients know it."""
    endpoint = PolicyEndpoint()
    name, conversation = endpoint.open()

    async def answered(messages: list[dict[str, Any]], reply: Callable[[], None]) -> tuple[Any, Any]:
        async with httpx.AsyncClient(base_url=endpoint.url, timeout=10) as client:
            body = {"model": name, "messages": messages, "tools": []}
            sent = asyncio.create_task(client.post("/chat/completions", json=body))
            try:
                asked = await conversation.next()
            finally:
                reply()
            return asked, (await sent).json()

    async def dialogue() -> None:
        history: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Add."}]}]
        call = ToolCall("add", {"a": 1})
        asked, reply = await answered(history, lambda: conversation.reply("I add.", {"c1": call}))
        assert asked.messages == [("user", "Add.", "")]
        message = reply["choices"][0]["message"]
        function = {"name": "add", "arguments": '{"a": 1}'}
        assert message["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
        history += [message, {"role": "tool", "tool_call_id": "c1", "content": "2"}]
        asked, reply = await answered(history, conversation.refuse)
        assert asked.messages == [("tool", "2", "c1")]
        assert reply["error"]["code"] == "context_length_exceeded"
        with pytest.raises(BackendError, match="rewrote the conversation"):
            await answered([{"role": "user", "content": "A summary."}], conversation.refuse)
        with pytest.raises(BackendError, match="image_url, which is no text"):
            await answered([*history, {"role": "user", "content": [{"type": "image_url"}]}], conversation.refuse)

    try:
        asyncio.run(dialogue())
    finally:
        endpoint.close()
