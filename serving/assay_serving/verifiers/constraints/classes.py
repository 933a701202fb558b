"""Constraints on the answer to a classification: its class, and the form with the thinking set apart.

Covers: the two rewards of CLS-RL ("Think or Not Think: A Study of Explicit Thinking in Rule-Based Visual Reinforcement
Fine-Tuning", arXiv 2503.16188), read at minglllli/CLS-RL (926eb1b): accuracy and form with thinking, the answer alone
without. Leaves out: the comparison by math-verify that their accuracy begins with (`maths`); names of one class that
differ (a cat, cats).
"""

import re
from dataclasses import dataclass, field
from typing import ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import PHRASE, Constraint, Verdict

_BETWEEN = re.compile(r"</think>\s*<answer>")
_OPENS, _CLOSES = "<think>", "</answer>"
_ANSWER = "<answer>"


@dataclass(frozen=True)
class ExactClass(Constraint):
    """The response's class is `label`, letter for letter.

    With `thinking` the class is what the first <answer> ... </answer> holds on one line, else all of the response, and
    case does not count. Without, the response is the class and nothing else, in the same case. Outer white space never
    counts (in the code it does without thinking).
    """

    names_the_answer: ClassVar[bool] = True
    label: str = field(metadata=PHRASE)
    thinking: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.thinking, bool):
            raise BadInputError(f"must be true or false, not {self.thinking!r}", field="thinking")

    def judge(self, response: str) -> Verdict:
        label, answer = self.label.strip(), response.strip()
        if self.thinking:
            answer = _tagged(response, answer)
        passed = answer.lower() == label.lower() if self.thinking else answer == label
        return Verdict(passed, f"answers {answer[:60]!r}, {label[:60]!r} is right")


def _tagged(response: str, default: str) -> str:
    """What stands between the first <answer> and </answer> of a line, in linear time."""
    for line in response.split("\n"):
        answer, closes, _ = line.partition(_ANSWER)[2].partition(_CLOSES)
        if closes:
            return answer.strip()
    return default


@dataclass(frozen=True)
class ThinkAnswer(Constraint):
    """The response is <think> ... </think><answer> ... </answer>, with nothing but white space between the two and
    nothing around them."""

    def judge(self, response: str) -> Verdict:
        ends = response.startswith(_OPENS) and response.endswith(_CLOSES)
        passed = ends and _BETWEEN.search(response, len(_OPENS), len(response) - len(_CLOSES)) is not None
        return Verdict(passed, f"{'has' if passed else 'lacks'} the form <think> </think><answer> </answer>")
