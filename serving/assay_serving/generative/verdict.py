"""Reading a judge's answer: the verdict is read at its position; an answer without one is a typed failure.

Covers: the rule of our own formats (the complete last line, and no other verdict), the kinds of failure, RM-R1's tail
rule for training. Leaves out: the verdicts of judges that were trained elsewhere (`profiles`), probabilities of
verdicts (`engine`), what a failure costs (the caller decides).

A verdict is never searched for in the reasoning: "I would say Verdict: A, but ..." decides nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

#: What the final line of our own formats begins with; one space and the label follow, then nothing.
DELIMITER = "Verdict:"
Fault: TypeAlias = Literal[
    "truncated", "empty", "no_verdict", "unknown_label", "trailing_text", "several", "tool_error"
]
#: Characters at the end of an answer in which no other verdict may stand, wherever in a line (arXiv 2505.02387).
TAIL = 80


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """`line_start`: where the final line, or what a profile reads as the verdict, begins in the text, in characters.

    `value`: the number that the verdict on one response stands for; None for our own formats, whose labels say it.
    `strength`: of a preference, 0 (barely) to 3 (far better); None where the judge states none. `values`: the scores of
    a list, in the order shown.
    """

    label: str
    line_start: int
    value: float | None = None
    strength: int | None = None
    values: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """Why an answer has no verdict.

    truncated: cut by the length limit. empty. no_verdict: neither the last line nor another is a verdict.
    unknown_label: the final line has no valid label (a look-alike letter, a number out of range, another case).
    trailing_text: something follows the verdict. several: another verdict line, or another label's verdict in the tail.
    tool_error: a call of a tool failed, where that is to be no verdict (`Judging.tool_errors`).
    """

    fault: Fault


def read_verdict(text: str, labels: Sequence[str], *, ended: bool = True) -> JudgeVerdict | ParseFailure:
    """The verdict of a judge's complete answer. `ended`: the judge ended its turn itself.

    Only spaces and line ends may follow the final line, and lines end at a line feed alone, as the template says.
    """
    if not ended:
        return ParseFailure("truncated")
    body = text.rstrip(" \t\r\n")
    if not body:
        return ParseFailure("empty")
    *before, last = body.split("\n")
    earlier = any(line.startswith(DELIMITER) for line in before)
    if not last.startswith(DELIMITER):
        return ParseFailure("trailing_text" if earlier else "no_verdict")
    stated = last[len(DELIMITER) :]
    label = next((label for label in labels if stated == f" {label}"), None)
    if label is None:
        followed = any(re.match(rf" {re.escape(label)}(?!\w)", stated) for label in labels)
        return ParseFailure("trailing_text" if followed else "unknown_label")
    other_labels = "|".join(re.escape(other) for other in labels if other != label)
    if earlier or re.search(rf"{re.escape(DELIMITER)} (?:{other_labels})(?!\w)", body[-TAIL:]):
        return ParseFailure("several")
    return JudgeVerdict(label, len(body) - len(last))


def tail_reward(text: str, right: str, wrong: str, *, tail: int = TAIL) -> int:
    """RM-R1's rule (arXiv 2505.02387, its code): +1 if the last `tail` characters hold the tag `right` and not the tag
    `wrong`, else -1. Tags are whole, e.g. `<answer>[[A]]</answer>`."""
    end = text[-tail:]
    return 1 if right in end and wrong not in end else -1
