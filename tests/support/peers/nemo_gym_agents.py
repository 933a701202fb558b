"""What NeMo-Gym's own agents and environment server earn in environments of ours, with the turns that are given.

Arguments: the addresses of the one with tools and of the one without; [agent, row, script] of each rollout, as JSON.
"""

import asyncio
import json
import sys
from urllib.parse import urlsplit

from nemo_gym_servers import POLICY, answer, configure, entry, reference, scripted_policy, started, stop

addresses = dict(zip(("calling", "speaking"), map(urlsplit, sys.argv[1:3]), strict=True))
model = reference("responses_api_models", POLICY)
servers = {
    name: entry("resources_servers", "assay", str(url.hostname), int(url.port or 0), domain="other")
    for name, url in addresses.items()
}
configure(
    **servers,
    simple=entry(
        "responses_api_agents",
        "simple_agent",
        resources_server=reference("resources_servers", "calling"),
        model_server=model,
    ),
    gymnasium=entry(
        "responses_api_agents",
        "gymnasium_agent",
        resources_server=reference("resources_servers", "speaking"),
        model_server=model,
    ),
    turn=entry(
        "environment_servers",
        "single_agent_turn_legacy",
        resources_server=reference("resources_servers", "calling"),
        agent_server=reference("responses_api_agents", "simple"),
        resources_tool_transports=["direct_http"],
        cleanup_timeout_seconds=30,
    ),
)

from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyEnvironmentServer  # noqa: E402
from nemo_gym.server_utils import ServerClient  # noqa: E402
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent  # noqa: E402


async def main() -> None:
    client = ServerClient.load_from_global_config()
    servers = await started(
        client,
        policy=scripted_policy(),
        simple=SimpleAgent,
        gymnasium=GymnasiumAgent,
        turn=SingleAgentTurnLegacyEnvironmentServer,
    )
    rewards = []
    for agent, row, script in json.loads(sys.argv[3]):
        params = row["responses_create_params"] | {"metadata": {"script": json.dumps(script)}}
        body = row | {"responses_create_params": params, "_ng_task_index": 0, "_ng_rollout_index": 0}
        try:
            result = await answer(client, agent, "/run", body)
            rewards.append(result.get("reward", result))
        except Exception as error:
            rewards.append(f"{type(error).__name__}: {getattr(error, 'response_content', error)!s}")
    await stop(servers)
    print(json.dumps(rewards))


asyncio.run(main())
