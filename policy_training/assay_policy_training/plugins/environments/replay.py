"""Semi-online replay: the policy acts along an expert's recorded trace, which goes on where it leaves it.

Covers: UI-S1's rollouts ("Advancing GUI Automation via Semi-online Reinforcement Learning", arXiv 2509.11543, code
X-PLUG/MobileAgent, UI-S1, read) for actions in text: an action that is the expert's continues the trace, another one is
patched, up to `patches` times, by the expert's own; beyond that the episode ends. A row's `trace` lists {"action",
"observation"}; the real environment is not needed. Leaves out: the advantage (`estimators.semi_online`), matching by
boxes on a screen.

Departs from the code: there the history is rewritten, so that the patched action stands in the place of the policy's
own; here a row is one sequence of tokens, and the policy reads after its action which one was taken instead.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

TRACE = "trace"  #: entry of a row


class TraceReplay(Environment):
    """The part `step` of a turn is 1 where it is the expert's action, `complete` of the episode 1 where all are.

    `patches`: how many actions that differ are replaced; -1: all. `patch`: what the policy reads of it.
    """

    parts: ClassVar[tuple[str, ...]] = ("step", "complete")
    patches: Annotated[int, Ge(-1)] = -1
    patch: str = "{action} was done instead\n{observation}"

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """Raises BadInputError for a row without a trace."""
        trace = prompt.meta.get(TRACE)
        if not isinstance(trace, list) or not trace:
            raise BadInputError("a list of actions with their observations", field=TRACE)
        for number, step in enumerate(trace, start=1):
            if not isinstance(step, Mapping) or not isinstance(step.get("action"), str):
                raise BadInputError(f"step {number} has no text `action`", field=TRACE)
        self._trace = [(step["action"], str(step.get("observation", ""))) for step in trace]
        self._at, self._patched = 0, 0
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        expert, observation = self._trace[self._at]
        right = action.text.strip() == expert.strip()
        self._at += 1
        self._patched += not right
        earned = {"step": float(right)}
        if self._at == len(self._trace) or (not right and 0 <= self.patches < self._patched):
            complete = self._at == len(self._trace) and not self._patched
            return Done({"complete": float(complete)}, earned, feedback="" if right else f"the expert: {expert}")
        patched = self.patch.replace("{action}", expert).replace("{observation}", observation)
        return Observation(observation if right else patched, rewards=earned)

    def cut(self) -> Done:
        return Done({"complete": 0.0})
