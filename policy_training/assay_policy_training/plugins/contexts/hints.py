"""Hints: the beginning of a worked solution, and prompts that show it.

Covers: how much of a solution a share is (by characters), how a hint joins the user's turn, which groups got nothing
right, which prompts of a batch they belong to. Leaves out: when a hint is shown, and what is trained on (the context
policies).
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem


def hint_of(solution: str, share: float) -> str:
    """The first `share` of the characters; 8 characters at 0.25 are 2."""
    if not 0 <= share <= 1:
        raise BadInputError(f"must be in [0, 1], not {share}", field="contexts.share")
    return solution[: round(len(solution) * share)]


def with_hint(prompt: Prompt, hint: str, wording: str) -> Prompt:
    """The prompt with `wording` appended to its last user turn, a text with `{hint}` in it."""
    last = max(index for index, message in enumerate(prompt) if message.role == "user")
    turn = prompt[last]
    hinted = Message("user", turn.content + wording.replace("{hint}", hint))
    return (*prompt[:last], hinted, *prompt[last + 1 :])


def row_text(item: PromptItem, key: str) -> str:
    """The text that the prompt's row has under `key`; empty where there is none."""
    value = item.meta.get(key)
    return value if isinstance(value, str) else ""


def check_wording(wording: str) -> None:
    """Raises BadInputError for a wording that shows no hint."""
    if "{hint}" not in wording:
        raise BadInputError("must say where the hint goes: {hint}", field="contexts.wording")


def group_accuracies(batch: RolloutBatch) -> Iterator[tuple[str, PromptItem, float]]:
    """Of each group: its uid, its prompt, and the mean of `acc` over the rows that have one (NaN: no row has)."""
    rows: dict[str, list[int]] = {}
    for row, uid in enumerate(batch.uid):
        rows.setdefault(uid, []).append(row)
    for uid, members in rows.items():
        acc = float("nan") if batch.acc is None else float(batch.acc[members].nanmean())
        yield uid, batch.items[members[0]], acc
