"""NeMo-Gym's own servers in one process, for the programs beside this: their configuration, start and calls.

A stand-in: the policy's model, which says and calls what a script (`metadata.script` of the request) tells it to.
"""

import asyncio
import json
import os
import socket
import sysconfig
import tempfile
from typing import Any

HERE = "127.0.0.1"
POLICY = "policy"
_held: list[socket.socket] = []


def free_port() -> int:
    """Nobody else is given it before the server, which sets SO_REUSEADDR, too, listens there."""
    _held.append(socket.socket())
    _held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held[-1].bind((HERE, 0))
    return int(_held[-1].getsockname()[1])


def entry(kind: str, implementation: str, host: str = HERE, port: int = 0, **settings: Any) -> dict[str, Any]:
    """A server of the configuration."""
    return {kind: {implementation: {"entrypoint": "app.py", "host": host, "port": port or free_port(), **settings}}}


def reference(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "name": name}


def configure(**servers: dict[str, Any]) -> None:
    """Before nemo_gym is imported: by the variables that NeMo-Gym gives the servers it starts."""
    head = {"head_server": {"host": HERE, "port": free_port()}, "dry_run": False}
    watched = {"observability_enabled": True, "model_call_capture_dir": tempfile.mkdtemp()}
    policy = {POLICY: entry("responses_api_models", POLICY)}
    # It moves the folder it is installed in behind all others of sys.path unless that is named as a root.
    os.environ["NEMO_GYM_EXTRA_ROOTS"] = sysconfig.get_path("purelib")
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(head | watched | policy | servers)


def said(*output: dict[str, Any]) -> dict[str, Any]:
    """A reply of the policy's model."""
    return {
        "id": "x",
        "created_at": 0.0,
        "model": POLICY,
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}


def call(name: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
    named = {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}
    return {**named, "id": f"c{number}", "call_id": f"c{number}", "status": "completed"}


def scripted_policy() -> type:
    """The model that says the script's turns, each a text or [[tool, arguments], ...]."""
    from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
    from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

    class Scripted(SimpleResponsesAPIModel):
        config: BaseResponsesAPIModelConfig

        async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
            script = json.loads((body.metadata or {})["script"])
            written = [item.model_dump() if hasattr(item, "model_dump") else item for item in body.input]
            turns = sum(item.get("role") == "assistant" for item in written)
            turns += len({item["call_id"] for item in written if item.get("type") == "function_call"})
            turn = script[turns]
            output = [message(turn)] if isinstance(turn, str) else [call(*turn, turns)]
            return NeMoGymResponse.model_validate(said(*output))

        async def chat_completions(self, body: Any) -> Any:
            raise NotImplementedError

    return Scripted


async def started(client: Any, **kinds: type) -> list[Any]:
    """The servers of these names, listening."""
    import uvicorn

    servers = []
    for name, kind in kinds.items():
        os.environ["NEMO_GYM_CONFIG_PATH"] = name
        peer: Any = kind(config=kind.load_config_from_global_config(), server_client=client)  # type: ignore[attr-defined]
        app = peer.setup_webserver()
        peer.setup_exception_middleware(app)
        listening = uvicorn.Server(uvicorn.Config(app, host=HERE, port=peer.config.port, log_level="warning"))
        servers.append((listening, asyncio.create_task(listening.serve())))
    while not all(listening.started for listening, _ in servers):
        await asyncio.sleep(0.05)
    return servers


async def stop(servers: list[Any]) -> None:
    for listening, _ in servers:
        listening.should_exit = True
    await asyncio.gather(*(task for _, task in servers))


async def answer(client: Any, name: str, path: str, body: dict[str, Any]) -> Any:
    from nemo_gym.server_utils import get_response_json, raise_for_status

    reply = await client.post(server_name=name, url_path=path, json=body)
    await raise_for_status(reply)
    return await get_response_json(reply)
