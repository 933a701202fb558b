"""NeMo-Gym's agent, environment server, comparison strategy and `ServerClient`, with our server as resources server.

Its simple agent and its single-agent-turn environment server run here as the web applications they are, configured by
the variable that NeMo-Gym gives the servers it starts. A stand-in: the policy's model, which always says "Gold.".
"""

import asyncio
import json
import os
import socket
import sys
import sysconfig
import tempfile
from typing import Any
from urllib.parse import urlsplit

url = sys.argv[1]
AGENT, TURN, POLICY, ASSAY = "agent", "turn", "policy", "assay"


held: list[socket.socket] = []


def free_port() -> int:
    """Nobody else is given it before the server, which sets SO_REUSEADDR, too, listens there."""
    held.append(socket.socket())
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held[-1].bind(("127.0.0.1", 0))
    return int(held[-1].getsockname()[1])


def server(kind: str, implementation: str, host: str, port: int, **settings: Any) -> dict[str, Any]:
    return {kind: {implementation: {"entrypoint": "app.py", "host": host, "port": port, **settings}}}


resources = {"type": "resources_servers", "name": ASSAY}
agent_server = {"type": "responses_api_agents", "name": AGENT}
model_server = {"type": "responses_api_models", "name": POLICY}
here = "127.0.0.1"
address = urlsplit(url)
config = {
    "head_server": {"host": here, "port": free_port()},
    "dry_run": False,
    ASSAY: server("resources_servers", "assay", str(address.hostname), int(address.port or 0), domain="other"),
    POLICY: server("responses_api_models", "policy", here, free_port()),
    AGENT: server(
        "responses_api_agents",
        "simple_agent",
        here,
        free_port(),
        resources_server=resources,
        model_server=model_server,
    ),
    TURN: server(
        "environment_servers",
        "single_agent_turn_legacy",
        here,
        free_port(),
        resources_server=resources,
        agent_server=agent_server,
        cleanup_timeout_seconds=30,
    ),
    "observability_enabled": True,
    "model_call_capture_dir": tempfile.mkdtemp(),
}
# It moves the folder it is installed in behind all others of sys.path unless that is named as a root.
os.environ["NEMO_GYM_EXTRA_ROOTS"] = sysconfig.get_path("purelib")
os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(config)

import uvicorn  # noqa: E402
from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyEnvironmentServer  # noqa: E402
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel  # noqa: E402
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming  # noqa: E402
from nemo_gym.reward_profile import compute_aggregate_metrics  # noqa: E402
from nemo_gym.rollout_reverification import _check_reverify_mode  # noqa: E402
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status  # noqa: E402
from resources_servers.genrm_compare.comparison_strategies import GenRMStrategy, GenRMStrategyConfig  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent  # noqa: E402

PROMPT = [{"role": "user", "content": "Name a metal."}]


def response(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    thought = {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "A metal."}]}
    fixed = {"object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    tokens = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    return {
        "id": "x",
        "created_at": 0.0,
        "model": POLICY,
        "output": [thought, message],
        "usage": tokens | details,
        **fixed,
    }


class Policy(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return NeMoGymResponse.model_validate(response("Gold."))

    async def chat_completions(self, body: Any) -> Any:
        raise NotImplementedError


async def answer(client: ServerClient, name: str, path: str, body: dict[str, Any]) -> Any:
    reply = await client.post(server_name=name, url_path=path, json=body)
    await raise_for_status(reply)
    return await get_response_json(reply)


async def main() -> None:
    client = ServerClient.load_from_global_config()
    started = []
    for name, kind in ((POLICY, Policy), (AGENT, SimpleAgent), (TURN, SingleAgentTurnLegacyEnvironmentServer)):
        os.environ["NEMO_GYM_CONFIG_PATH"] = name
        peer = kind(config=kind.load_config_from_global_config(), server_client=client)
        listening = uvicorn.Server(
            uvicorn.Config(peer.setup_webserver(), host=here, port=peer.config.port, log_level="warning")
        )
        started.append((listening, asyncio.create_task(listening.serve())))
    while not all(listening.started for listening, _ in started):
        await asyncio.sleep(0.05)
    rows = [
        {"responses_create_params": {"input": PROMPT}, "_ng_task_index": task, "_ng_rollout_index": repeat}
        for task in range(2)
        for repeat in range(2)
    ]
    agent = [await answer(client, AGENT, "/run", row) for row in rows]
    # Without indices there is no name for the rollout: the paths of the resources server are the plain ones.
    plain = await answer(client, AGENT, "/run", {"responses_create_params": {"input": PROMPT}})
    turn = await answer(client, TURN, "/run", rows[0])
    verified = [
        row | {"response": response(text), "reward": reward}
        for row, text, reward in zip(rows, ("Gold.", "Tin.", "Gold.", "Glass."), (1.5, 0.25, 1.5, -2.0), strict=True)
    ]
    verified[3]["mask_sample"] = True
    strategy = GenRMStrategy(GenRMStrategyConfig(genrm_compare_server_name=ASSAY))
    rewards, metrics = await strategy.compare(PROMPT, [response("Gold."), response("Glass.")], client)
    result = {
        "agent": [rollout["reward"] for rollout in agent],
        "plain": plain["reward"],
        "turn": turn.get("reward", turn),
        "compare": rewards,
        "compare metrics": metrics,
        "not stateless": await _check_reverify_mode(client, {AGENT: ASSAY}),
        "aggregated": await answer(client, TURN, "/aggregate_metrics", {"verify_responses": verified}),
        "aggregated by the agent": await answer(client, AGENT, "/aggregate_metrics", {"verify_responses": agent}),
        "its own": compute_aggregate_metrics(verified).model_dump(),
        "its own of the agent": compute_aggregate_metrics(agent).model_dump(),
    }
    for listening, _ in started:
        listening.should_exit = True
    await asyncio.gather(*(task for _, task in started))
    print(json.dumps(result))


asyncio.run(main())
