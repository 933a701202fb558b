"""Environments of Gymnasium whose observations can be read: `id` is made once an episode, each turn is one action.

    environment: {kind: gymnasium, id: FrozenLake-v1, options: {render_mode: ansi}, actions: {left: 0, down: 1}}

Covers: observations as texts, what an "ansi" environment renders, or by a function of the user; actions by names; the
reward of each step, whose sum is the episode's. Leaves out: vectorised environments, pixels.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import Any, ClassVar

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.registry import Kind
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

PART = "reward"
#: What terminals colour stands out: FrozenLake's ansi form shows by colour alone where one is.
_COLOURED = re.compile(r"(?:\x1b\[[1-9][\d;]*m)+(.*?)(?:\x1b\[0?m)+", re.DOTALL)
_TAGGED = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)
FUNCTIONS: Kind[Any] = Kind("function", "Shows an observation, or reads an action.", requires=("__call__",))


class Gymnasium(Environment):
    """`id`: as `gymnasium.make` takes it (`module:Id` imports the module), `options`: its other arguments. `rules`:
    what the policy reads first. `actions`: the environment's actions by the names that a turn says; default: a whole
    number, or of an environment of texts the turn itself. `show`: module:function or file.py:function (observation,
    environment) -> text; default: what it renders in the mode "ansi", else the observation.

    A turn's action is its text, what it has in <action> tags, or the one action that it names. A turn without an action
    is answered by the names there are, and is no step of the environment.
    """

    parts: ClassVar[tuple[str, ...]] = (PART,)
    id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rules: str = ""
    actions: Mapping[str, Any] = field(default_factory=dict)
    show: str = ""

    def __post_init__(self) -> None:
        """Raises BackendError without the package, BadInputError for an id or a function that is not there."""
        super().__post_init__()
        gymnasium = _gymnasium()
        module, colon, _ = self.id.rpartition(":")
        try:
            if colon:
                import_module(module)
            gymnasium.spec(self.id)
        except (gymnasium.error.Error, ImportError, ValueError) as error:
            raise BadInputError(f"Gymnasium: {error}", field="environment.id") from error
        self.show = FUNCTIONS.absolute(self.show)
        self._show = FUNCTIONS.find(self.show, field="environment.show") if self.show else _text_of

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """A row's `meta` may have `seed` and `options`, as the environment's own `reset` takes them."""
        self._world = _gymnasium().make(self.id, **self.options)
        self._names = {name.casefold(): action for name, action in self._actions_by_name().items()}
        observed, _ = self._world.reset(seed=prompt.meta.get("seed", seed), options=prompt.meta.get("options"))
        listed = f"Actions: {', '.join(self._names)}" if self._names else ""
        return Observation("\n\n".join(part for part in (self.rules, listed, self._text(observed)) if part))

    def step(self, action: Action) -> Observation | Done:
        move = self._action(action.text)
        if move is None:
            return Observation(f"error: a turn is {' or '.join(self._names) or self._world.action_space}")
        observed, reward, terminated, truncated, _ = self._world.step(move)
        earned = {PART: reward}
        return Done({}, earned) if terminated or truncated else Observation(self._text(observed), rewards=earned)

    def cut(self) -> Done:
        """What the steps so far have earned, and no more."""
        return Done({PART: 0.0})

    def close(self) -> None:
        if hasattr(self, "_world"):
            self._world.close()

    def _actions_by_name(self) -> Mapping[str, Any]:
        spaces, space = _gymnasium().spaces, self._world.action_space
        if self.actions or isinstance(space, spaces.Text):
            return self.actions
        if isinstance(space, spaces.Discrete):
            return {str(number): number for number in range(int(space.start), int(space.start + space.n))}
        raise BadInputError(f"the actions of {self.id} are {space}: give them names", field="environment.actions")

    def _action(self, text: str) -> Any:
        """None: the turn has none."""
        tagged = _TAGGED.findall(text)
        word = (tagged[-1] if tagged else text).strip()
        if not self._names:
            return word if self._world.action_space.contains(word) else None
        if word.casefold() in self._names:
            return self._names[word.casefold()]
        # "-1" and "1.5" are not the action 1.
        pattern = r"(?<![\w.-]){}(?!\w|\.\d)" if all(name.isdigit() for name in self._names) else r"(?<!\w){}(?!\w)"
        names = {name for name in self._names if re.search(pattern.format(re.escape(name)), word.casefold())}
        return self._names[names.pop()] if len(names) == 1 else None

    def _text(self, observed: Any) -> str:
        text = self._show(observed, self._world)
        if not isinstance(text, str):
            raise BadInputError(f"gave {type(text).__name__}, not text", field="environment.show")
        return text


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` tasks, each with a seed of its own, which differ by split."""
    prompt = (Message("user", "Act, one action a turn."),)
    seeds = [derived_seed(seed, split, "gymnasium", number) % 2**31 for number in range(int(argument or 64))]
    return [PromptItem(prompt, meta={"seed": number}) for number in seeds]


def _text_of(observed: Any, environment: Any) -> str:
    if environment.render_mode == "ansi":
        return _COLOURED.sub(r"[\1]", str(environment.render())).strip("\n")
    return str(observed)


def _gymnasium() -> Any:
    try:
        return import_module("gymnasium")
    except ImportError as error:
        raise BackendError(f"the environment gymnasium needs its package: pip install gymnasium ({error})") from error
