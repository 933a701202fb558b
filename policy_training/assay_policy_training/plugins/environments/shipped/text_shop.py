"""A shop as an app in text: screens as text, actions as text, and what happens to apps: pop-ups, lost clicks, restarts.

Covers: the app, its tasks (`--prompts text_shop:N`), a player for demonstrations. A turn is a word of the screen, or
`home`; `buy` ends the episode. What goes wrong follows from the episode's seed. Leaves out: images, typing.

Tasks are of three lengths: an item of any colour, one of a colour, one of a colour that is also wrapped.
"""

import random
from collections.abc import Sequence
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

ITEMS, COLOURS = ("mug", "pen", "lamp"), ("red", "gray", "tan")
POPUP = "popup: close"
#: Asked for, or had on a screen: item, colour ("" = any, or not chosen yet), whether it is wrapped.
Goods = tuple[str, str, bool]


class TextShop(Environment):
    """The part `bought` is of the episode: whether what was bought is what was asked for. `popup`, `lost`, `restart`:
    how often a turn is followed by a pop-up, is not taken, or begins the app anew."""

    parts: ClassVar[tuple[str, ...]] = ("bought",)
    copies: ClassVar[bool] = True
    clicks: Annotated[int, Ge(1)] = 10  #: then nothing was bought
    popup: Annotated[float, Ge(0), Le(1)] = 0.1
    lost: Annotated[float, Ge(0), Le(1)] = 0.1
    restart: Annotated[float, Ge(0), Le(1)] = 0.05

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        item, colour, wrapped = prompt.meta["goods"]
        self._asked: Goods = (item, colour, bool(wrapped))
        self._goods: Goods = ("", "", False)
        self._random, self._popup, self._clicks = random.Random(seed), False, 0
        return Observation(self._screen())

    def step(self, action: Action) -> Observation | Done:
        self._clicks += 1
        event, word = self._random.random(), action.text.strip().lower()
        if event < self.lost:
            return self._answer("no answer. ")
        if event < self.lost + self.restart:
            self._goods, self._popup = ("", "", False), False
            return self._answer("restarted. ")
        item, colour, wrapped = self._goods
        before = ""
        if self._popup:
            self._popup = word != "close"
        elif word == "buy" and colour:
            asked = self._asked
            return Done({"bought": float(item == asked[0] and asked[1] in ("", colour) and wrapped == asked[2])})
        elif word == "home":
            self._goods = ("", "", False)
        elif word in ITEMS and not item:
            self._goods = (word, "", False)
        elif word in COLOURS and item and not colour:
            self._goods = (item, word, False)
        elif word == "wrap" and colour:
            self._goods = (item, colour, True)
        else:
            before = "unclear. "
        self._popup = self._popup or event > 1 - self.popup
        return self._answer("" if self._popup else before)

    def cut(self) -> Done:
        return Done({"bought": 0.0})

    def _answer(self, before: str) -> Observation | Done:
        return self.cut() if self._clicks >= self.clicks else Observation(before + self._screen())

    def _screen(self) -> str:
        item, colour, wrapped = self._goods
        if self._popup:
            return POPUP
        if not item:
            return f"shop: {' '.join(ITEMS)}"
        if not colour:
            return f"{item}: {' '.join(COLOURS)}"
        return f"{colour} {item} wrapped: buy" if wrapped else f"{colour} {item}: wrap buy"


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` errands, a third of each length."""
    rng, items = random.Random(f"{seed}/{split}"), []
    for number in range(int(argument or 64)):
        item, colour = rng.choice(ITEMS), rng.choice(COLOURS) if number % 3 else ""
        wrapped = number % 3 == 2
        text = f"Buy: {colour} {item}{' wrapped' if wrapped else ''}.".replace(":  ", ": ")
        items.append(PromptItem((Message("user", text),), meta={"goods": [item, colour, wrapped]}))
    return items


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """The next turn after these. An unskilled player clicks anything that is there half of the time."""
    item, colour, wrapped = prompt.meta["goods"]
    title, _, there = (observed[-1] if observed else f"shop: {' '.join(ITEMS)}").rpartition(". ")[2].partition(": ")
    if not skilled and rng.random() < 0.5:
        return rng.choice([*there.split(), "home"])
    if title == "popup":
        return "close"
    if title == "shop":
        return str(item)
    if item not in title or (colour not in title and " " in title):
        return "home"
    if " " not in title:
        return str(colour) or rng.choice(COLOURS)
    if wrapped == title.endswith(" wrapped"):
        return "buy"
    return "wrap" if wrapped else "home"
