"""An environment of OpenEnv 0.10 whose rubric asks an Assay server, behind OpenEnv's own server:

    assay serve MODEL --port 8000
    uvicorn --app-dir examples/reward_endpoint openenv_rubric:app --port 8001

`ServedReward` goes into any environment that applies its rubric in `step`. $ASSAY_REWARD_URL, $ASSAY_REWARD_MODEL and
$ASSAY_API_KEY say which server. A reply without a score is an error of the step; it is never a number.
"""

import os
from typing import Any

from openenv.core.env_server import Environment, create_fastapi_app
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.rubrics import Rubric

from assay.score import Score
from assay_serving.client import RewardClient


class ServedReward(Rubric):
    """The reward of `action.text` as the reply to `observation.question`."""

    def __init__(self) -> None:
        super().__init__()
        url, model = os.environ.get("ASSAY_REWARD_URL", "http://127.0.0.1:8000"), os.environ.get("ASSAY_REWARD_MODEL")
        self.client = RewardClient(url, model=model, deadline=60)

    def forward(self, action: Any, observation: Any) -> float:
        [result] = self.client.score_group(observation.question, [action.text])
        if not isinstance(result, Score):
            raise RuntimeError(f"no score: {result.message}")
        return result.reward


class Reply(Action):
    text: str


class Question(Observation):
    question: str


class Answering(Environment[Reply, Question, State]):
    """One question, one reply."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__(rubric=ServedReward())

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, question: str = "Name a metal.", **options: Any
    ) -> Question:
        self.question = question
        return Question(question=question)

    def step(self, action: Reply, timeout_s: float | None = None, **options: Any) -> Question:
        observed = Question(question=self.question, done=True)
        observed.reward = self._apply_rubric(action, observed)
        return observed

    @property
    def state(self) -> State:
        return State()


app = create_fastapi_app(Answering, Reply, Question, max_concurrent_envs=64)
