"""Two agents of one policy on a grid: they move by turns, each to its goal, and neither into the other.

Covers: the grid, its tasks (`--prompts two_agent_grid:N`), a player for demonstrations that plans for both. A turn is a
move of one agent: r, l, u, d, or w to wait. Moves are carried out together after the second agent's turn; agents that
would meet or change places both stay. Positions are given as steps: `r2u1` is two to the right and one up.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, ClassVar

from annotated_types import Ge

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation, Parts

MOVES = {"r": (1, 0), "l": (-1, 0), "u": (0, 1), "d": (0, -1), "w": (0, 0)}
#: Width and height: a corridor of two rows, so that agents are in each other's way.
SIZE = (4, 2)
RULES = "Two agents go to their goals: r l u d, or w."
Cell = tuple[int, int]
Cells = tuple[Cell, Cell]


class TwoAgentGrid(Environment):
    """The part `arrived` is of the episode, `step` of each pair of moves: -`cost`."""

    parts: ClassVar[tuple[str, ...]] = ("arrived",)
    copies: ClassVar[bool] = True
    steps: Annotated[int, Ge(1)] = 6  #: pairs of moves; then they have not arrived
    cost: Annotated[float, Ge(0)] = 0.0

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._at, self._goals = (_cells(prompt.meta[name]) for name in ("at", "goals"))
        self._first, self._taken = "", 0
        return self._observed()

    def step(self, action: Action) -> Observation | Done:
        move = action.text.strip()
        if move not in MOVES:
            return self._observed("unclear. ")
        if not self._first:
            self._first = move
            return self._observed()
        self._at, self._first, self._taken = moved(self._at, self._first + move), "", self._taken + 1
        earned = {"step": -self.cost} if self.cost else {}
        if self._at == self._goals or self._taken >= self.steps:
            return Done({"arrived": float(self._at == self._goals)}, earned)
        return self._observed(rewards=earned)

    def cut(self) -> Done:
        return Done({"arrived": 0.0})

    def _observed(self, before: str = "", rewards: Parts | None = None) -> Observation:
        """The state is named by what a critic reads of it, and by what the first agent plans."""
        turn = f"A {self._first}. B:" if self._first else "A:"
        words, named = _words(self._at, self._goals), _state_name(self._at, self._goals)
        return Observation(f"{before}{words}. {turn}", rewards=rewards or {}, state=f"{named}|{self._first}")


def moved(at: Cells, moves: str) -> Cells:
    """After a move of each; walls stop one, the other agent stops both."""
    after = [
        (min(max(x + MOVES[move][0], 0), SIZE[0] - 1), min(max(y + MOVES[move][1], 0), SIZE[1] - 1))
        for (x, y), move in zip(at, moves, strict=True)
    ]
    meet = after[0] == after[1] or (after[0] == at[1] and after[1] == at[0])
    return at if meet else (after[0], after[1])


@cache
def distances(goals: Cells) -> dict[Cells, int]:
    """Pairs of moves to the goals, from each pair of cells that can reach them. The oracle of plans."""
    cells = [(x, y) for x in range(SIZE[0]) for y in range(SIZE[1])]
    before: dict[Cells, list[Cells]] = {}
    for at in ((a, b) for a in cells for b in cells if a != b):
        for moves in _pairs():
            before.setdefault(moved(at, moves), []).append(at)
    known, ahead = {goals: 0}, deque([goals])
    while ahead:
        after = ahead.popleft()
        for at in before.get(after, ()):
            if at not in known:
                known[at] = known[after] + 1
                ahead.append(at)
    return known


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` pairs of starts and goals, at least two moves apart."""
    rng, items = random.Random(f"{seed}/{split}"), list[PromptItem]()
    cells = [(x, y) for x in range(SIZE[0]) for y in range(SIZE[1])]
    while len(items) < int(argument or 64):
        at, goals = _cells(rng.sample(cells, 2)), _cells(rng.sample(cells, 2))
        if distances(goals)[at] >= 2:
            items.append(PromptItem((Message("user", RULES),), meta={"at": list(at), "goals": list(goals)}))
    return items


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """The next turn after these, of a plan for both agents. An unskilled player moves anywhere half of the time."""
    at, goals = (_cells(prompt.meta[name]) for name in ("at", "goals"))
    first = ""
    for turn, answer in zip(turns, observed, strict=True):
        if answer.startswith("worse"):
            continue
        first, at = ("", moved(at, first + turn)) if first else (turn, at)
    if not skilled and rng.random() < 0.5:
        return rng.choice(list(MOVES))
    known, refused = distances(goals), _refused(observed)
    pairs = [moves for moves in _pairs() if moves.startswith(first) and moves[len(first)] not in refused]
    nearest = min(known[moved(at, moves)] for moves in pairs)
    return rng.choice([moves for moves in pairs if known[moved(at, moves)] == nearest])[len(first)]


def _refused(observed: Sequence[str]) -> str:
    """Moves that feedback has refused since the last one that was taken."""
    refused = ""
    for answer in reversed(observed):
        if not answer.startswith("worse"):
            break
        refused += answer.split()[1][0]
    return refused


def _pairs() -> Iterator[str]:
    return (first + second for first in MOVES for second in MOVES)


def _cells(pair: Sequence[Sequence[int]]) -> Cells:
    (a, b), (c, d) = pair
    return (a, b), (c, d)


def _words(at: Cells, goals: Cells) -> str:
    """The state as the policy reads it."""
    return f"A {_offset(at[0], goals[0])} B {_offset(at[1], goals[1])} at {_offset(at[0], at[1])}"


def _state_name(at: Cells, goals: Cells) -> str:
    """The state as words that say whose they are."""
    ways = zip("ABO", (_offset(at[0], goals[0]), _offset(at[1], goals[1]), _offset(at[0], at[1])), strict=True)
    return " ".join(f"{who}{way[n : n + 2]}" for who, way in ways for n in range(0, len(way), 2))


def _offset(start: Cell, end: Cell) -> str:
    """Steps from one cell to another, as text."""
    right, up = end[0] - start[0], end[1] - start[1]
    across, along = f"{'r' if right > 0 else 'l'}{abs(right)}", f"{'u' if up > 0 else 'd'}{abs(up)}"
    return (across if right else "") + (along if up else "") or "0"
