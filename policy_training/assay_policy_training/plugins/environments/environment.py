"""What an environment is: it observes, takes the policy's turns, and rewards turns and episodes.

    class Doubling(Environment):
        start: int = 1                                   # a setting of the recipe's section `environment`

        def reset(self, prompt, seed):
            self.value = self.start
            return Observation(f"Double {self.value}.")

        def step(self, action):
            self.value *= 2
            return Done({"right": float(action.text.strip() == str(self.value))})

Covers: the values that are exchanged and the base class; `reset`, `step`, `cut` and `close` may be coroutines. Leaves
out: running an environment with its limits (`episode`), turns as tokens (`samplers.episodes`).

Every episode has an instance of its own, made of the settings. The rows of a group get one seed, and so one task.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, dataclass_transform

from assay.conversation.parts import ToolDefinitionPart
from assay.domain import Message
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_serving.tools.tool import ToolCall, ToolResult

#: Named parts: a number, or why there is none.
Parts: TypeAlias = Mapping[str, float | ScoreFailure]


@dataclass(frozen=True, slots=True)
class Action:
    """A turn of the policy: `text` as it wrote it, `calls` of the tools that there are, in their order. Calls that
    cannot be run (no JSON, no such tool, wrong arguments) are answered before, and not among them."""

    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What the policy reads next: `results` of the action's calls, one for each in their order, then `messages` (a text
    is a user's). `rewards`: what its turn earned. `tools`: what it may call from now on, of `reset` alone; `offered`:
    whether the prompt describes them, which a policy that was trained on its tools can do without. `state`: a name of
    the environment's state, for methods that compare turns taken in one; default: what was observed. `prompt`: what the
    policy reads in place of the prompt; of `reset` alone."""

    messages: str | Sequence[Message] = ()
    results: Sequence[ToolResult] = ()
    rewards: Parts = field(default_factory=dict)
    tools: Sequence[ToolDefinitionPart] = ()
    state: str | None = None
    offered: bool = True
    prompt: Sequence[Message] = ()

    @property
    def as_messages(self) -> tuple[Message, ...]:
        """The messages as such."""
        return (Message("user", self.messages),) if isinstance(self.messages, str) else tuple(self.messages)


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an episode: what it earned as a whole, and what its last turn did. `feedback`: why it failed, for the
    record and for whoever guides another attempt (the context policy `guided_retry`); the policy does not read it."""

    rewards: Parts = field(default_factory=dict)
    turn_rewards: Parts = field(default_factory=dict)
    feedback: str = ""


@dataclass_transform(field_specifiers=(field,))
class Environment(RecipeSettings, frozen=False):
    """Base of environments. A subclass is a dataclass whose fields are its settings."""

    parts: ClassVar[tuple[str, ...]] = ()  #: of its rewards, which a recipe can weigh although a step has none of them
    #: A deep copy between two turns is an episode of its own in the same state, and need not be closed.
    copies: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__("environment", frozen=False, **options)

    def check(self) -> None:
        """Called once, before a model is loaded. Raises AssayError for settings that no episode can begin with."""

    def reset(self, prompt: PromptItem, seed: int) -> Observation | Awaitable[Observation]:
        """Begin. The policy reads the prompt's messages, then the observation's."""
        raise NotImplementedError

    def step(self, action: Action) -> Observation | Done | Awaitable[Observation | Done]:
        """Take a turn of the policy."""
        raise NotImplementedError

    def cut(self) -> Done | Awaitable[Done | None] | None:
        """What an episode earned that ends because the policy has no turns or tokens left; None: its parts are
        missing, and the row is not trained on unless other sources reward it."""
        return None

    def close(self) -> object:
        """Give back what the episode holds: called once, however it ends."""
        return None
