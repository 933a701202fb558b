"""Gymnasium's FrozenLake and Taxi, and an environment registered here, played by us and by Gymnasium's own loop."""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
from scripted_play import played, trained

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.adapters.gymnasium import Gymnasium
from assay_policy_training.recipe.loading import load_recipe

ITEM = PromptItem((Message("user", "Act."),))
LAKE = {"left": 0, "down": 1, "right": 2, "up": 3}


class Words(gymnasium.Env[str, str]):
    """Says back what it was told, and rewards its length; "nan" earns no number, and "long" ends by truncation."""

    observation_space = gymnasium.spaces.Text(100, charset=frozenset(map(chr, range(0x250))))
    action_space = gymnasium.spaces.Text(40, min_length=0, charset=frozenset(map(chr, range(0x250))))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return f"seed {seed}, {options}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "crash":
            raise RuntimeError("the words are gone")
        reward = float("nan") if action == "nan" else len(action) / 40
        return f"you said {action}", reward, action == "end", action == "long", {}


gymnasium.register("Words-v0", entry_point=Words)


def its_own(name: str, actions: list[int], **options: Any) -> float:
    """The return of these actions by Gymnasium alone."""
    world = gymnasium.make(name, **options)
    world.reset(seed=7)
    total, over = 0.0, False
    for action in actions:
        if over:
            break
        _, reward, terminated, truncated, _ = world.step(action)
        total, over = total + float(reward), terminated or truncated
    return total


def refusal(**settings: Any) -> str:
    try:
        played(Gymnasium(**settings), ITEM, ["1"])
    except BadInputError as error:
        return str(error)
    return "none"


recipe = load_recipe(str(Path(__file__).resolve().parents[3] / "examples/policy_training/frozen_lake.yaml"))
assert isinstance(recipe.environment, Gymnasium)
lake = recipe.environment
slippery = Gymnasium(id="FrozenLake-v1", options={"render_mode": "ansi"}, actions=LAKE)
taxi = Gymnasium(id="Taxi-v4", options={"render_mode": "ansi"})
words = Gymnasium(id="Words-v0")
good = ["down", "I go <action>Down</action>", "right", "Now down.", "right", "right"]
bad = ["right", "down"]
mixed = ["right", "left or right?", "down", "2"]
random = [str(number % 6) for number in range(0, 250 * 5, 5)]
told = {
    "good": played(lake, ITEM, good, 7),
    "good, its own": its_own("FrozenLake-v1", [1, 1, 2, 1, 2, 2], is_slippery=False),
    "bad": played(lake, ITEM, bad, 7),
    "bad, its own": its_own("FrozenLake-v1", [2, 1], is_slippery=False),
    "slippery": played(slippery, ITEM, ["right", "down"] * 60, 7),
    "slippery, its own": its_own("FrozenLake-v1", [2, 1] * 60),
    "illegal": played(lake, ITEM, mixed, 7),
    "numbers": played(taxi, ITEM, ["-1", "1.5", "x 9", "I take 3."], 7),
    "cut": played(taxi, ITEM, random[:30], 7),
    "cut, its own": its_own("Taxi-v4", [int(action) for action in random[:30]]),
    "truncated": played(taxi, ITEM, random, 7),
    "truncated, its own": its_own("Taxi-v4", [int(action) for action in random]),
    "texts": played(words, PromptItem(ITEM.prompt, meta={"seed": 3, "options": {"a": 1}}), ["hello", "x" * 50, "long"]),
    "no number": played(words, ITEM, ["hello", "nan", "end"]),
    "raises": played(words, ITEM, ["hello", "crash"]),
    "no id": refusal(id="FrozenLak-v1"),
    "no module": refusal(id="nowhere:FrozenLake-v1"),
    "no names": played(Gymnasium(id="Pendulum-v1"), ITEM, ["left"]),
}
for name in ("cut", "truncated"):
    told[name]["observed"] = told[name]["observed"][:1]
if sys.argv[1:]:
    own = [
        "environment.kind=gymnasium",
        "environment.id=Words-v0",
        "sampling.max_new_tokens=200",
        "episodes.turn_tokens=6",
    ]
    told["trained"] = trained(
        "--prompts", "gymnasium:4", *(word for one in own for word in ("--set", one)), *sys.argv[1:]
    )
print(json.dumps(told))
