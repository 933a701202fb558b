"""examples/reward_endpoint/openenv_rubric.py behind OpenEnv's own server: what OpenEnv's own client earns there.

And what OpenEnv's own `LLMJudge` says of the replies, whose model is behind our chat route.
"""

import asyncio
import json
import os
import runpy
import socket
import sys
from urllib.parse import urlsplit

import uvicorn
from openenv.core.generic_client import GenericEnvClient
from openenv.core.llm_client import OpenAIClient
from openenv.core.rubrics import LLMJudge

url, example, replies, judge = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), urlsplit(sys.argv[4])
os.environ["ASSAY_REWARD_URL"] = url


async def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(runpy.run_path(example)["app"], log_level="warning"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    rewards: list[float | str] = []
    for text in replies:
        async with GenericEnvClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            await client.reset()
            try:
                rewards.append((await client.step({"text": text})).reward)
            except Exception as error:
                rewards.append(str(error))
    server.should_exit = True
    await task
    client = OpenAIClient(f"http://{judge.hostname}", int(judge.port or 0), model="judge", api_key="none")
    rubric = LLMJudge("Rate from 0 to 1: {action}", client)
    print(json.dumps([*rewards, *[await rubric(text, None) for text in replies[:2]]]))


asyncio.run(main())
