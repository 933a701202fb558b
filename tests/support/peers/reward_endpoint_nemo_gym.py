"""examples/reward_endpoint/nemo_gym.yaml: its agent, and what it earns of a server of ours with the scripts given."""

import asyncio
import json
import sys
from urllib.parse import urlsplit

import yaml
from nemo_gym_servers import answer, configure, free_port, scripted_policy, started, stop

url, example, replies = urlsplit(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
with open(example, encoding="utf-8") as stream:
    servers = yaml.safe_load(stream)
servers["assay"]["resources_servers"]["assay"] |= {"host": url.hostname, "port": url.port}
agent = servers["assay_simple_agent"]["responses_api_agents"]["simple_agent"]
agent |= {"host": "127.0.0.1", "port": free_port()}
agent["model_server"]["name"] = "policy"
configure(**servers)

from nemo_gym.server_utils import ServerClient  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent  # noqa: E402


async def main() -> None:
    client = ServerClient.load_from_global_config()
    running = await started(client, policy=scripted_policy(), assay_simple_agent=SimpleAgent)
    rewards = []
    for text in replies:
        params = {"input": [{"role": "user", "content": "Name a metal."}], "metadata": {"script": json.dumps([text])}}
        reply = await answer(client, "assay_simple_agent", "/run", {"responses_create_params": params})
        rewards.append(reply["reward"])
    await stop(running)
    print(json.dumps(rewards))


asyncio.run(main())
