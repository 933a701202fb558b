"""Twenty Questions with a program as the oracle: find the object by questions of yes and no.

Covers: the game, its tasks (`--prompts twenty_questions:N`), a player for demonstrations. A turn is a question
(`alive?`) or a guess (`whale`); a guess ends the game.
"""

import random
from collections.abc import Sequence
from typing import Annotated, ClassVar

from annotated_types import Ge

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

QUESTIONS = ("alive", "large", "wild")
OBJECTS = {
    "whale": (True, True, True),
    "cow": (True, True, False),
    "fox": (True, False, True),
    "cat": (True, False, False),
    "glacier": (False, True, True),
    "truck": (False, True, False),
    "pebble": (False, False, True),
    "spoon": (False, False, False),
}
RULES = f"Find the object. Ask {', '.join(f'{q}?' for q in QUESTIONS)} or guess: {', '.join(OBJECTS)}."


class TwentyQuestions(Environment):
    """The part `win` is of the episode, `question` of each turn that asks: -`cost`, a reward where that is negative."""

    parts: ClassVar[tuple[str, ...]] = ("win",)
    copies: ClassVar[bool] = True
    questions: Annotated[int, Ge(1)] = 5  #: then the game is lost
    cost: float = 0.0

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._secret = str(prompt.meta.get("secret") or random.Random(seed).choice(list(OBJECTS)))
        self._asked, self._left = 0, list(OBJECTS)  # what it can still be
        return Observation(state=" ".join(self._left))

    def step(self, action: Action) -> Observation | Done:
        text = action.text.strip().strip(".?!").lower()
        if text in OBJECTS:
            return Done({"win": float(text == self._secret)}, {"question": 0.0} if self.cost else {})
        self._asked += 1
        earned = {"question": -self.cost} if self.cost else {}
        if self._asked >= self.questions:
            return Done({"win": 0.0}, earned)
        if text not in QUESTIONS:
            return Observation("unclear", rewards=earned, state=" ".join(self._left))
        yes = OBJECTS[self._secret][QUESTIONS.index(text)]
        self._left = [name for name in self._left if OBJECTS[name][QUESTIONS.index(text)] == yes]
        return Observation("yes" if yes else "no", rewards=earned, state=" ".join(self._left))

    def cut(self) -> Done:
        return Done({"win": 0.0})


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` games, every object equally often."""
    secrets = [list(OBJECTS)[number % len(OBJECTS)] for number in range(int(argument or 64))]
    random.Random(f"{seed}/{split}").shuffle(secrets)
    return [PromptItem((Message("user", RULES),), meta={"secret": secret}) for secret in secrets]


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """The next turn after these and what was observed. An unskilled player guesses at random at times."""
    candidates = list(OBJECTS)
    for question, answer in zip(turns, observed, strict=True):
        column = QUESTIONS.index(question.rstrip("?"))
        candidates = [name for name in candidates if OBJECTS[name][column] == (answer == "yes")]
    if len(candidates) == 1 and skilled:
        return candidates[0]
    unasked = [question for question in QUESTIONS if f"{question}?" not in turns]
    if unasked and (skilled or rng.random() < 0.7):
        return f"{rng.choice(unasked)}?"
    return rng.choice(list(OBJECTS))
