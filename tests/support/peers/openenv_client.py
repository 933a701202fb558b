"""What OpenEnv's own client reads and earns in an environment of ours: [reset's arguments, actions] of each episode."""

import asyncio
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient


async def played(options: dict[str, Any], actions: list[dict[str, Any]]) -> list[Any]:
    async with GenericEnvClient(base_url=sys.argv[1]) as client:
        seen: list[Any] = [(await client.reset(**options)).observation]
        try:
            for action in actions:
                result = await client.step(action)
                seen.append([result.observation, result.reward, result.done])
        except Exception as error:
            seen.append(str(error))
        return seen


async def main() -> None:
    print(json.dumps([await played(options, actions) for options, actions in json.loads(sys.argv[2])]))


asyncio.run(main())
