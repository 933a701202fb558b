"""The environment of a policy that calls tools before it answers; what it answers is rewarded as any response is.

Covers: tools of the registry, and environments with tools of their own, which subclass `ToolEnvironment`. The calls of
a turn run at the same time, within the tools' limits. Leaves out: the tools (`assay_serving.tools`).
"""

from collections.abc import Sequence
from copy import copy
from typing import ClassVar

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_serving.tools.kind import absolute_reference, tools_of
from assay_serving.tools.tool import Tool, ToolTurn
from assay_serving.tools.toolbox import Toolbox, toolbox


class ToolEnvironment(Environment):
    """A turn with calls is answered by `tools`; `answer` takes one without. `offered`: whether the prompt describes the
    tools."""

    offered: bool = True

    def open_tools(self, prompt: PromptItem, seed: int) -> Sequence[Tool]:
        """The episode's tools: of objects that it shares with no other, or that several threads may use."""
        raise NotImplementedError

    def answer(self, text: str) -> Observation | Done:
        """The default: the episode ends."""
        return Done()

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._box, self._turns = Toolbox(self.open_tools(prompt, seed)), list[ToolTurn]()
        return Observation(tools=self._box.definitions, offered=self.offered)

    def step(self, action: Action) -> Observation | Done:
        if not action.calls:
            return self.answer(action.text)
        results = self._box.run(action.calls, self._turns)
        self._turns.append(ToolTurn(action.text, tuple(results)))
        return Observation(results=results)

    def cut(self) -> Done:
        return Done()


class Tools(ToolEnvironment):
    """`tools`: what the policy may call, as in `assay plugins tool`, with settings after a question mark. `fresh`: each
    episode opens them anew, such as an MCP server that keeps state; else they are opened once a process."""

    copies: ClassVar[bool] = True
    tools: tuple[str, ...] = ("calculator",)
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tools = tuple(map(absolute_reference, self.tools))
        if not self.tools:
            raise BadInputError("names no tool", field="environment.tools")
        object.__setattr__(self, "copies", not self.fresh)  # tools with state are called again instead

    def check(self) -> None:
        toolbox(self.tools)

    def __deepcopy__(self, memo: object) -> "Tools":
        copied = copy(self)  # tools that are not fresh hold nothing of an episode
        if hasattr(self, "_turns"):
            copied._turns = list(self._turns)
        return copied

    def open_tools(self, prompt: PromptItem, seed: int) -> Sequence[Tool]:
        if not self.fresh:
            return list(toolbox(self.tools).tools.values())
        self._opened: list[Tool] = []  # what is open when a later one cannot be opened is closed, too
        for reference in self.tools:
            self._opened += tools_of(reference)
        return self._opened

    def close(self) -> None:
        for tool in getattr(self, "_opened", ()):
            getattr(tool, "close", lambda: None)()
