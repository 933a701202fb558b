"""examples/reward_endpoint/verifiers_reward.py, plugged into a task of verifiers, which scores traces itself.

Stand-ins: the traces, of a policy that says the replies; and the judge's model, behind our chat route, of verifiers'
own `ReferenceJudge`.
"""

import asyncio
import json
import os
import sys

import verifiers.v1 as vf
from verifiers.v1.graph import MessageNode

url, example, replies, judge = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
os.environ["ASSAY_REWARD_URL"] = url
os.environ["JUDGE_KEY"] = "none"


class Question(vf.TaskData):
    answer: str


class Asked(vf.Task[Question, vf.State, vf.TaskConfig]):
    """A question that has no reward of its own."""


async def main() -> None:
    data = Question(prompt="Name a metal.", answer="Gold.")
    endpoint = {"id": "reference", "model": "judge", "base_url": f"{judge}/v1", "api_key_var": "JUDGE_KEY"}
    config = vf.TaskConfig.model_validate({"rewards": {"assay": {"fn": f"{example}:reward"}}, "judges": [endpoint]})
    task = Asked(data, config)
    rewards = []
    for text in replies:
        trace = vf.Trace(
            task=vf.trace.TraceTask(type="Asked", data=data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=[MessageNode(message=vf.AssistantMessage(content=text), sampled=True)],
        )
        try:
            await task.score(trace)
            rewards.append({name: reward and reward.value for name, reward in trace.rewards.items()})
        except vf.TaskError as error:
            rewards.append(str(error))
    print(json.dumps(rewards))


asyncio.run(main())
