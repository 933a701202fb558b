"""Tools, and an answer that the prompt's constraints check at once: tests of a program, the right answer to a problem.

Covers: further attempts within an episode, for which the policy reads why its answer fails, but never the right answer;
that reason, the right answer included, as the episode's feedback. With `tools: [python]` and rows of HumanEval it is a
programmer that may run its code before the tests do. Leaves out: the checks (`assay_serving.verifiers`), the sandbox
that they run in.
"""

from typing import Annotated, ClassVar

from annotated_types import Ge

from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Done, Observation
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_serving.verifiers import shared_pool
from assay_serving.verifiers.constraint import Constraint

WRONG = "This is not right: {why}\nTry again."
ANOTHER = "the right answer is another one"


def fault_in(prompt: PromptItem, text: str) -> str:
    """Why the text does not meet the prompt's constraints; empty where it does. Raises as `faults_in`."""
    return "; ".join(detail for _, detail in faults_in(prompt, text))


def faults_in(prompt: PromptItem, text: str) -> list[tuple[Constraint, str]]:
    """The constraints that it does not meet, and why. Raises BadInputError for a prompt without constraints and
    BackendError where a check comes to no verdict."""
    if not prompt.constraints:
        raise BadInputError("the prompt has no constraints (answer, answers, tests) to check it by", field="prompts")
    [outcome] = shared_pool().verify([(prompt.constraints, text)])
    if isinstance(outcome, ScoreFailure):
        raise BackendError(f"{outcome.code}: {outcome.message}")
    pairs = zip(outcome.constraints, outcome.verdicts, strict=True)
    return [(constraint, verdict.detail) for constraint, verdict in pairs if not verdict.passed]


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
        faults = faults_in(self._prompt, text)
        self._why = "; ".join(detail for _, detail in faults)
        if not self._why or self._answers >= self.attempts:
            return Done({"passed": float(not self._why)}, feedback=self._why)
        told = "; ".join(ANOTHER if constraint.names_the_answer else detail for constraint, detail in faults)
        return Observation(WRONG.format(why=told))

    def cut(self) -> Done:
        return Done({"passed": 0.0}, feedback=self._why)
