"""examples/reward_endpoint: verifiers, NeMo-Gym and OpenEnv with the rewards of a server of ours. TRL's example is in
`test_trl_training`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from peer_programs import REPOSITORY, said_by

from assay.domain import Message
from assay.http.running import running_app
from assay.score import Score
from assay_serving.chat.app import create_chat_app
from assay_serving.chat.scripted import ReceivedRequest, ScriptedChat
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.process import RunningServer
from assay_serving.scorer import ScoreItem

EXAMPLES = REPOSITORY / "examples" / "reward_endpoint"
REPLIES = ["Gold.", "Glass."]


@pytest.fixture(scope="module")
def expected(scorer: TransformersScorer) -> list[Any]:
    scores = scorer.score([ScoreItem((Message("user", "Name a metal."),), reply) for reply in REPLIES])
    rewards = [score.reward for score in scores if isinstance(score, Score)]
    assert len(set(rewards)) == 2
    return [pytest.approx(reward, abs=1e-5) for reward in rewards]


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    """A model behind our chat route, which says yes (0.9) to the reply that is the answer, and else no (0.1)."""

    def verdict(request: ReceivedRequest) -> str:
        asked = str(request.body["messages"])
        right = asked.count("Gold.") == (1 if asked.count("Rate from 0 to 1") else 2)
        return ("0.9" if right else "0.1") if "Rate from 0 to 1" in asked else "yes" if right else "no"

    with running_app(create_chat_app(ScriptedChat(verdict))) as url:
        yield url


def said_of(peer: str, program: str, example: str, server: RunningServer, judge: str) -> list[Any]:
    """What the project's program says of the replies, then of one that is too long to be scored."""
    replies = json.dumps([*REPLIES, "x" * 20000])
    rewards: list[Any] = said_by(peer, program, server.url, EXAMPLES / example, replies, judge)
    assert "no score" in rewards.pop(2)
    return rewards


def test_openenvs_rubric_and_judge(server: RunningServer, expected: list[Any], judge: str) -> None:
    said = said_of("openenv", "reward_endpoint_openenv.py", "openenv_rubric.py", server, judge)
    assert said == [*expected, 0.9, 0.1]


@pytest.mark.slow
def test_nemo_gyms_agent(server: RunningServer, expected: list[Any]) -> None:
    example = EXAMPLES / "nemo_gym.yaml"
    assert said_by("nemo-gym", "reward_endpoint_nemo_gym.py", server.url, example, json.dumps(REPLIES)) == expected


@pytest.mark.slow
def test_verifiers_rewards_and_reference_judge(server: RunningServer, expected: list[Any], judge: str) -> None:
    said = said_of("verifiers", "reward_endpoint_verifiers.py", "verifiers_reward.py", server, judge)
    assert said == [{"assay": expected[0], "reference": 1.0}, {"assay": expected[1], "reference": 0.0}]
