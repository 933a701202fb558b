"""Tools, and an answer that the prompt's constraints check at once: tests of a program, the right answer to a problem.

Covers: further attempts within an episode, for which the policy reads why its answer fails; that reason as the
episode's feedback. With `tools: [python]` and rows of HumanEval it is a programmer that may run its code before the
tests do. Leaves out: the checks (`assay_serving.verifiers`), the sandbox that they run in.
"""

from typing import Annotated, ClassVar

from annotated_types import Ge

from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Done, Observation
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_serving.verifiers import shared_pool

WRONG = "This is not right: {why}\nTry again."


def fault_in(prompt: PromptItem, text: str) -> str:
    """Why the text does not meet the prompt's constraints; empty where it does. Raises BadInputError for a prompt
    without constraints and BackendError where a check comes to no verdict."""
    if not prompt.constraints:
        raise BadInputError("the prompt has no constraints (answer, answers, tests) to check it by", field="prompts")
    [outcome] = shared_pool().verify([(prompt.constraints, text)])
    if isinstance(outcome, ScoreFailure):
        raise BackendError(f"{outcome.code}: {outcome.message}")
    return "; ".join(verdict.detail for verdict in outcome.verdicts if not verdict.passed)


class CheckedTools(Tools):
    """The part `passed` is 1 where an answer, a turn without calls, meets the prompt's constraints. `attempts`: answers
    that an episode may give."""

    parts: ClassVar[tuple[str, ...]] = ("passed",)
    attempts: Annotated[int, Ge(1)] = 1

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._prompt, self._answers, self._why = prompt, 0, "there is no answer"
        return super().reset(prompt, seed)

    def answer(self, text: str) -> Observation | Done:
        self._answers += 1
        self._why = fault_in(self._prompt, text)
        if not self._why or self._answers >= self.attempts:
            return Done({"passed": float(not self._why)}, feedback=self._why)
        return Observation(WRONG.format(why=self._why))

    def cut(self) -> Done:
        return Done({"passed": 0.0}, feedback=self._why)
