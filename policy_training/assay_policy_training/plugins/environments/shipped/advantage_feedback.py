"""ReAd: moves of the two agents that a critic finds too bad are not carried out; the policy reads so and plans again.

Covers: the local advantage of an agent's move, A_i = Q(s, a_1..a_i, w) - Q(s, a_1..a_{i-1}, w), where agents that have
not moved yet wait (w); feedback below `threshold`, at most `replans` times a move; a critic fitted on the returns of
recorded episodes. Leaves out: joint plans of both agents (ReAd-J), training the policy by the advantages.

Source: ReAd, arXiv 2405.14314 (abstract and secondary sources; the authors' page has no code): critic regression on the
planner's own data, sequential advantages, replanning while the score is below a threshold. Ours: the critic (a logistic
model of words), Q as gamma^(pairs of moves left) of episodes that arrive, the wording.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.text_values import Pair, TextValues
from assay_policy_training.plugins.environments.environment import Action, Done, Observation
from assay_policy_training.plugins.environments.shipped.two_agent_grid import MOVES, TwoAgentGrid, distances, moved
from assay_policy_training.plugins.environments.shipped.two_agent_grid import play as play
from assay_policy_training.plugins.environments.shipped.two_agent_grid import tasks as tasks

GAMMA = 0.8  #: of Q, a pair of moves


class AdvantageFeedback(TwoAgentGrid):
    """`critic`: a file of `write_critic`; empty = exact, by the plans of an oracle."""

    critic: str = ""
    threshold: float = 0.0
    replans: Annotated[int, Ge(0)] = 3

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._replanned = 0
        self._values = TextValues.load(self.critic) if self.critic else None
        return super().reset(prompt, seed)

    def step(self, action: Action) -> Observation | Done:
        move = action.text.strip()
        if move in MOVES and self._replanned < self.replans and self.advantage(move) < self.threshold:
            self._replanned += 1
            return self._observed(f"worse: {move}. ")
        self._replanned = 0
        return super().step(action)

    def advantage(self, move: str) -> float:
        """Of the move of the agent whose turn it is."""
        first = self._first
        chosen, waiting = (first + move, first + "w") if first else (move + "w", "ww")
        if self._values is None:
            known = distances(self._goals)
            return float(GAMMA ** known[moved(self._at, chosen)] - GAMMA ** known[moved(self._at, waiting)])
        state = str(self._observed().state).partition("|")[0]
        value, least = self._values([(state, action_words(chosen)), (state, action_words(waiting))])
        return value - least


def write_critic(rollouts: Path | str, file: Path | str) -> int:
    """Fit Q on the episodes of a run's `rollouts.jsonl`; returns how many pairs of moves there were. Raises
    BadInputError for a file without episodes on the grid."""
    pairs, returns = list[Pair](), list[float]()
    with Path(rollouts).open(encoding="utf-8") as lines:
        for line in lines:
            for pair, value in returns_of(json.loads(line).get("episode") or {}):
                pairs.append(pair)
                returns.append(value)
    if not pairs:
        raise BadInputError("holds no pair of moves on a grid", file=Path(rollouts))
    values = TextValues()
    values.fit(pairs, returns)
    values.save(file)
    return len(pairs)


def returns_of(episode: Mapping[str, Any]) -> Iterator[tuple[Pair, float]]:
    """State and moves of each pair that was carried out, and what was earned from there on: gamma^(pairs after it)."""
    taken = []
    for turn in episode.get("turns", ()):
        state, _, first = str(turn.get("state", "")).partition("|")
        move, answers = turn["text"].strip(), turn["messages"]
        if first and move in MOVES and not any(str(answer["content"]).startswith("worse") for answer in answers):
            taken.append((state, action_words(first + move)))
    arrived = float(episode.get("rewards", {}).get("arrived", 0.0) == 1.0)
    for left, pair in enumerate(reversed(taken)):
        yield pair, arrived * GAMMA**left


def action_words(moves: str) -> str:
    """The two moves, each as a word, and both as one."""
    return f"A{moves[0]} B{moves[1]} {moves}"
