"""Two of NeMo-Gym's example resource servers, and what its own agents earn there with the scripts that are given. One
is changed: for an `expected_count` below 0 it masks the sample (-1), or gives a reward that is no number, or none.

Prints the addresses and the rewards, then serves until its standard input ends.
"""

import asyncio
import json
import sys
from typing import Any

from nemo_gym_servers import (
    HERE,
    POLICY,
    answer,
    configure,
    entry,
    free_port,
    reference,
    scripted_policy,
    started,
    stop,
)

COUNTER, QUESTIONS = free_port(), free_port()
model = reference("responses_api_models", POLICY)
configure(
    counter=entry("resources_servers", "example_session_state_mgmt", port=COUNTER, domain="other"),
    questions=entry("resources_servers", "example_multi_turn_gymnasium", port=QUESTIONS, domain="other"),
    caller=entry(
        "responses_api_agents",
        "simple_agent",
        resources_server=reference("resources_servers", "counter"),
        model_server=model,
    ),
    speaker=entry(
        "responses_api_agents",
        "gymnasium_agent",
        resources_server=reference("resources_servers", "questions"),
        model_server=model,
    ),
)

from fastapi import Request, Response  # noqa: E402
from nemo_gym.server_utils import ServerClient  # noqa: E402
from resources_servers.example_multi_turn_gymnasium.app import ExampleMultiTurnEnv  # noqa: E402
from resources_servers.example_session_state_mgmt.app import (  # noqa: E402
    StatefulCounterResourcesServer,
    StatefulCounterVerifyRequest,
)
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent  # noqa: E402


class Counter(StatefulCounterResourcesServer):
    async def verify(self, request: Request, body: StatefulCounterVerifyRequest) -> Any:
        verdict = await super().verify(request, body)
        if body.expected_count == -1:
            verdict.mask_sample, verdict.failure_reason = True, "the session is lost"
        broken = {-2: '{"reward": NaN}', -3: "{}", -4: "[]"}.get(body.expected_count)
        return verdict if broken is None else Response(broken, media_type="application/json")


async def main() -> None:
    client = ServerClient.load_from_global_config()
    servers = await started(
        client,
        policy=scripted_policy(),
        counter=Counter,
        questions=ExampleMultiTurnEnv,
        caller=SimpleAgent,
        speaker=GymnasiumAgent,
    )
    rewards = {}
    for name, agent, row, script in json.loads(sys.argv[1]):
        params = row["responses_create_params"] | {"metadata": {"script": json.dumps(script)}}
        rewards[name] = (await answer(client, agent, "/run", row | {"responses_create_params": params}))["reward"]
    addresses = {"counter": f"http://{HERE}:{COUNTER}", "questions": f"http://{HERE}:{QUESTIONS}"}
    print(json.dumps(addresses | {"rewards": rewards}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await stop(servers)


asyncio.run(main())
