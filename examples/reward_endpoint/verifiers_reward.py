"""A reward of verifiers 0.4 that an Assay server gives, for any taskset, by its configuration alone:

    [env.taskset.task.rewards.assay]
    fn = "examples/reward_endpoint/verifiers_reward.py:reward"

$ASSAY_REWARD_URL is the server (`assay serve MODEL`), $ASSAY_REWARD_MODEL one of several, $ASSAY_API_KEY its key. A
reply without a score raises, which fails the rollout; it is never a number.
"""

import os

import verifiers.v1 as vf

from assay.score import Score
from assay_serving.client import AsyncRewardClient


async def reward(task: vf.TaskData, trace: vf.Trace) -> float:
    """Of the last reply to the task's prompt."""
    url, model = os.environ.get("ASSAY_REWARD_URL", "http://127.0.0.1:8000"), os.environ.get("ASSAY_REWARD_MODEL")
    async with AsyncRewardClient(url, model=model, deadline=60) as client:
        [result] = await client.score_group(task.prompt_text, [trace.last_reply])
    if not isinstance(result, Score):
        raise vf.TaskError(f"no score: {result.message}")
    return result.reward
