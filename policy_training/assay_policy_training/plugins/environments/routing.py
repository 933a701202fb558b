"""A policy that routes: it asks other models, each at a price, and answers with what they said.

Covers: Router-R1's turns (arXiv 2506.09033; code programmer229/Router-R1, a fork of ulab-uiuc's, read): `<search>NAME:
question</search>` asks a model, whose reply comes within `<information>`, `<answer>...</answer>` ends the episode; the
parts that its reward is made of (`compositions.router`). The models are OpenAI-compatible endpoints. A model that does
not answer, or has a price and does not count its tokens, fails the episode by name (there, the policy reads an error).
Leaves out: that turns begin with <think>, which is a setting; several questions a turn.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.chat_replies import chat_endpoint, chat_reply
from assay_policy_training.plugins.environments.checked import fault_in
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

_ASK = re.compile(r"<search>([^<:]{1,200}):([^<]{1,8000})</search>\s*\Z")
_ANSWER = re.compile(r"<answer>([^<]{0,8000})</answer>\s*\Z")


class Routing(Environment):
    """`urls`: name -> endpoint (ends in /v1); `served`: name -> its model there, else the name; `prices`: name -> of a
    thousand tokens that it writes.

    Parts of the episode: `format`, -1 where a turn has another form, else 0; `outcome`, 1 where the answer meets the
    prompt's constraints; `cost`, the price of what was asked. `thinking`: every turn begins with <think>...</think>.
    """

    parts: ClassVar[tuple[str, ...]] = ("format", "outcome", "cost")
    urls: Mapping[str, str] = field(default_factory=dict)
    served: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    thinking: bool = False
    max_tokens: Annotated[int, Ge(1)] = 512
    temperature: Annotated[float, Ge(0)] = 0.0
    seconds: Annotated[float, Gt(0)] = 60.0  #: of one reply

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.urls or self.urls.keys() != self.prices.keys():
            raise BadInputError("each model has a url and a price", field="environment.urls")
        if unknown := self.served.keys() - self.urls.keys():
            raise BadInputError(f"{sorted(unknown)[0]!r} has no url", field="environment.served")
        self._endpoints = {
            name: chat_endpoint(url, self.served.get(name, name), seconds=self.seconds)
            for name, url in self.urls.items()
        }

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._prompt, self._seed, self._cost = prompt, seed, 0.0
        return Observation()

    async def step(self, action: Action) -> Observation | Done:
        text = action.text.strip()
        if self.thinking and not re.match(r"<think>[^<]+</think>", text):
            return self._done(-1.0, 0.0, "the turn does not begin with <think>")
        if answer := _ANSWER.search(text):
            why = "the answer is empty"
            if answer[1].strip():  # a check may run a program, which must not hold up the others' replies
                why = await asyncio.to_thread(fault_in, self._prompt, answer[1])
            return self._done(0.0, float(not why), why)
        asked = _ASK.search(text)
        name = asked[1].strip() if asked else ""
        if asked is None or name not in self.urls:
            return self._done(-1.0, 0.0, f"a turn asks one of {', '.join(self.urls)}, or answers")
        reply = await chat_reply(
            self._endpoints[name],
            [{"role": "user", "content": asked[2].strip()}],
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self._seed,
        )
        if reply.tokens is None and self.prices[name]:
            raise BackendError(f"{name} does not say how many tokens it wrote, so that there is no price")
        self._cost += self.prices[name] * (reply.tokens or 0) / 1000
        return Observation(f"<information>{reply.text}</information>")

    def cut(self) -> Done:
        return self._done(-1.0, 0.0, "there is no answer")

    def _done(self, form: float, outcome: float, why: str) -> Done:
        return Done({"format": form, "outcome": outcome, "cost": self._cost}, feedback=why)
