"""A user whose turns a model writes, behind any OpenAI-compatible endpoint: it has a goal, and says when it is done.

Covers: the goal (an entry of the row) and how the model is told to play it, the conversation with its roles exchanged,
the end signal, a program that decides whether the goal was reached, from the conversation. Without one, rewards come
from other sources, such as a judge. A model that does not answer fails the episode by name. Leaves out: tools, which
`tools` has; a model of this process (serve it: `assay serve-chat`).
"""

import asyncio
import json
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.chat_replies import chat_endpoint, chat_reply
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_serving.verifiers.sandbox.program_runner import SandboxError, explain, run_program

ROLE = (
    "You play a user who talks to an assistant. Your goal: {goal}\nWrite the user's next message and nothing else, one "
    "or two sentences, without giving away all of the goal at once. Once the goal is reached, or cannot be, write {end}"
)
FIRST = "(The assistant waits for your first message.)"
EXCHANGED = {"user": "assistant", "assistant": "user"}
CHECK_SECONDS = 5.0


class UserSimulator(Environment):
    """`url` (ends in /v1), `model`: who plays. `goal`: the row's entry that says what the user wants. `role`: the
    instructions, with `{goal}` and `{end}`. `end`: the signal. `program`: the row's entry with a Python program, which
    reads the conversation, a JSON list of messages, from its input: the part `goal` is 1 where it exits with 0."""

    parts: ClassVar[tuple[str, ...]] = ("goal",)
    url: str = ""
    model: str = ""
    goal: str = "goal"
    role: str = ROLE
    end: str = "[DONE]"
    program: str = "check"
    max_tokens: Annotated[int, Ge(1)] = 200
    temperature: Annotated[float, Ge(0)] = 1.0
    seconds: Annotated[float, Gt(0)] = 60.0  #: of one reply

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.url or not self.model:
            raise BadInputError("name the endpoint that plays the user: url and model", field="environment.url")
        if "{goal}" not in self.role or not self.end:
            raise BadInputError("must have {goal}, and there must be an end signal", field="environment.role")
        self._endpoint = chat_endpoint(self.url, self.model, seconds=self.seconds)

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """Raises BadInputError for a row without a goal."""
        goal = prompt.meta.get(self.goal)
        if not isinstance(goal, str) or not goal:
            raise BadInputError("a text that says what the user wants", field=self.goal)
        self._program: Any = prompt.meta.get(self.program)
        self._role = self.role.replace("{goal}", goal).replace("{end}", self.end)
        self._seed = seed
        self._conversation = [{"role": m.role, "content": m.text} for m in prompt.prompt if m.role in EXCHANGED]
        return Observation()

    async def step(self, action: Action) -> Observation | Done:
        self._conversation.append({"role": "assistant", "content": action.text})
        exchanged = [{**message, "role": EXCHANGED[message["role"]]} for message in self._conversation]
        opening = [{"role": "system", "content": self._role}, {"role": "user", "content": FIRST}]
        reply = await chat_reply(
            self._endpoint,
            [*opening, *exchanged],
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self._seed + len(self._conversation),
        )
        if self.end in reply.text:
            return await self._done()
        self._conversation.append({"role": "user", "content": reply.text})
        return Observation(reply.text)

    async def cut(self) -> Done:
        return await self._done()

    async def _done(self) -> Done:
        """Raises BackendError where this machine cannot contain the program, and where it does not come to an end."""
        if not isinstance(self._program, str):
            return Done()
        try:
            ended = await asyncio.to_thread(
                run_program, self._program, json.dumps(self._conversation), seconds=CHECK_SECONDS, memory=1 << 30
            )
        except SandboxError as error:
            raise BackendError(str(error)) from error
        if ended.reason != "exit":
            raise BackendError(f"the program of the goal has no verdict: {explain(ended, CHECK_SECONDS)}")
        reached = ended.status == 0
        return Done({"goal": float(reached)}, feedback="" if reached else explain(ended, CHECK_SECONDS))
