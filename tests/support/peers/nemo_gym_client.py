"""NeMo-Gym's agent, environment server, comparison strategy and `ServerClient`, with our server as resources server.

Its simple agent and its single-agent-turn environment server run here as the web applications they are, configured by
the variable that NeMo-Gym gives the servers it starts. A stand-in: the policy's model, which always says "Gold.".
"""

import asyncio
import json
import sys
from typing import Any
from urllib.parse import urlsplit

from nemo_gym_servers import POLICY, answer, configure, entry, message, reference, said, started, stop

AGENT, TURN, ASSAY = "agent", "turn", "assay"
resources, address = reference("resources_servers", ASSAY), urlsplit(sys.argv[1])
configure(
    assay=entry("resources_servers", "assay", str(address.hostname), int(address.port or 0), domain="other"),
    agent=entry(
        "responses_api_agents",
        "simple_agent",
        resources_server=resources,
        model_server=reference("responses_api_models", POLICY),
    ),
    turn=entry(
        "environment_servers",
        "single_agent_turn_legacy",
        resources_server=resources,
        agent_server=reference("responses_api_agents", AGENT),
        cleanup_timeout_seconds=30,
    ),
)

from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyEnvironmentServer  # noqa: E402
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel  # noqa: E402
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming  # noqa: E402
from nemo_gym.reward_profile import compute_aggregate_metrics  # noqa: E402
from nemo_gym.rollout_reverification import _check_reverify_mode  # noqa: E402
from nemo_gym.server_utils import ServerClient  # noqa: E402
from resources_servers.genrm_compare.comparison_strategies import GenRMStrategy, GenRMStrategyConfig  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent  # noqa: E402

PROMPT = [{"role": "user", "content": "Name a metal."}]


def response(text: str) -> dict[str, Any]:
    thought = {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "A metal."}]}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    tokens = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    return said(thought, message(text)) | {"usage": tokens | details}


class Policy(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return NeMoGymResponse.model_validate(response("Gold."))

    async def chat_completions(self, body: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    client = ServerClient.load_from_global_config()
    servers = await started(client, policy=Policy, agent=SimpleAgent, turn=SingleAgentTurnLegacyEnvironmentServer)
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
    await stop(servers)
    print(json.dumps(result))


asyncio.run(main())
