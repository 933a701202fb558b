"""ReAd: advantages of moves as feedback, exact and by a critic that recorded episodes taught."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Observation
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.environments.shipped.advantage_feedback import (
    GAMMA,
    AdvantageFeedback,
    returns_of,
    write_critic,
)
from assay_policy_training.plugins.environments.shipped.two_agent_grid import MOVES, TwoAgentGrid, play

TASK = PromptItem((Message("user", "?"),), meta={"at": [[0, 0], [3, 1]], "goals": [[2, 0], [3, 0]]})


def played(environment: TwoAgentGrid, task: PromptItem, rng: random.Random) -> Episode:
    """An episode of an unskilled player."""
    episode = Episode(task, environment, EpisodeLimits(turns=99))
    episode.begin(environment.reset(task, 0))
    while episode.ended is None:
        texts = [turn.text for turn in episode.turns]
        action = episode.act(play(task, texts, [turn.observed for turn in episode.turns], rng, False), 1)
        assert action is not None
        episode.observe(environment.step(action), action)
    return episode


def test_a_move_that_loses_is_not_carried_out_until_it_was_refused_often_enough() -> None:
    environment = AdvantageFeedback(replans=2)
    environment.reset(TASK, 0)
    # A is two pairs of moves away and B one: a step of A's gains one, a step back loses one
    assert environment.advantage("r") == pytest.approx(GAMMA**1 - GAMMA**2)
    assert environment.advantage("u") == pytest.approx(GAMMA**3 - GAMMA**2)
    said = [environment.step(Action(move)) for move in ("u", "l", "u")]
    assert [answer.messages for answer in said if isinstance(answer, Observation)] == [
        "worse: u. A r2 B d1 at r3u1. A:",
        "A r2 B d1 at r3u1. A l. B:",  # against the wall: nothing is lost
        "A r2 B d1 at r3u1. A:",  # nor here
    ]
    said = [environment.step(Action("u")) for _ in range(3)]
    assert [answer.messages for answer in said if isinstance(answer, Observation)] == [
        "worse: u. A r2 B d1 at r3u1. A:",
        "worse: u. A r2 B d1 at r3u1. A:",
        "A r2 B d1 at r3u1. A u. B:",
    ]


def test_a_critic_of_recorded_episodes_tells_good_moves_from_bad_ones(tmp_path: Path) -> None:
    rng = random.Random(0)
    episodes = [played(TwoAgentGrid(), TASK, rng).to_dict() for _ in range(300)]
    rollouts, critic = tmp_path / "rollouts.jsonl", tmp_path / "critic.json"
    rollouts.write_text("".join(f"{json.dumps({'episode': episode})}\n" for episode in episodes), encoding="utf-8")
    assert write_critic(rollouts, critic) == sum(len(list(returns_of(episode))) for episode in episodes)
    learnt, exact = AdvantageFeedback(critic=str(critic)), AdvantageFeedback()
    for first in ("", "r"):
        for environment in (learnt, exact):
            environment.reset(TASK, 0)
            if first:
                environment.step(Action(first))
        best, worst = max(MOVES, key=exact.advantage), min(MOVES, key=exact.advantage)
        assert learnt.advantage(best) > learnt.advantage(worst)


def test_returns_are_discounted_from_the_end_and_count_no_refused_move(tmp_path: Path) -> None:
    environment: Any = AdvantageFeedback()
    episode = Episode(TASK, environment, EpisodeLimits(turns=99))
    episode.begin(environment.reset(TASK, 0))
    for move in ("u", "r", "d", "r", "w"):  # the first is refused
        action = episode.act(move, 1)
        assert action is not None
        episode.observe(environment.step(action), action)
    assert episode.rewards == {"arrived": 1.0}
    assert list(returns_of(episode.to_dict())) == [
        (("Ar1 B0 Or2", "Ar Bw rw"), 1.0),
        (("Ar2 Bd1 Or3 Ou1", "Ar Bd rd"), GAMMA),
    ]
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("{}\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="no pair of moves"):
        write_critic(rollouts, tmp_path / "critic.json")
