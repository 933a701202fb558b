"""Hints, the beginning of a worked solution, for groups that fail: GHPO and Guide-GRPO.

Covers: how much of a solution a share is (by characters), how a hint joins the user's turn, which groups got nothing
right, which prompts of a batch they belong to.

GHPO: a prompt that no row of the group solves shows a growing part of its solution, and is trained with it. Covers: the
share of the solution by round, a cold start in which every prompt is hinted. Whether a group failed is decided by the
verifier (`acc`), never by a reward that a right format raises; a prompt without a verifier or a solution is not hinted.
Rows generated with a hint have the source `hinted`. Leaves out: shares that fit the prompt (`seele`). Source: arXiv
2507.10628, code hkgc-1/GHPO read. The hint is cut by characters, as there.

Guide-GRPO: a prompt that no row of the group solves is generated again with a hint, and trained without it. Covers:
which groups are generated again (by the verifier), the hinted context of generation beside the original one of
training, the tag `guided` of such rows. Their `logp_mu` is of the hinted context: the ratio of the objective `guide` is
taken against it, and a behaviour correction must leave these rows alone. Leaves out: that objective, dropping hinted
groups that are still all wrong or all right (filter `guided_mixed`). Source: arXiv 2506.13923, code guide_rl read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Annotated

from annotated_types import Ge, Lt

from assay.conversation.parts import TextPart
from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings, StatefulSettings
from assay_policy_training.plugins.protocols import RecipeView, ResampleRequest, StepReport


def hint_of(solution: str, share: float) -> str:
    """The first `share` of the characters; 8 characters at 0.25 are 2."""
    if not 0 <= share <= 1:
        raise BadInputError(f"must be in [0, 1], not {share}", field="contexts.share")
    return solution[: round(len(solution) * share)]


def with_hint(prompt: Prompt, hint: str, wording: str) -> Prompt:
    """The prompt with `wording` appended to its last user turn, a text with `{hint}` in it."""
    last = max(index for index, message in enumerate(prompt) if message.role == "user")
    turn = prompt[last]
    worded = wording.replace("{hint}", hint)
    if isinstance(turn.content, str):
        hinted = Message("user", turn.content + worded)
    else:
        hinted = Message("user", (*turn.content, TextPart(worded)))
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


HINTED = "hinted"


class Ghpo(StatefulSettings, section="contexts"):
    """S1. `shares`: of the solution, by round. `cold_start`: steps in which every prompt is shown the first share."""

    shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    cold_start: Annotated[int, Ge(0)] = 0
    solution: str = "solution"
    wording: str = "\n\nThe following is the beginning of a solution; continue from it: {hint}"
    steps: int = field(init=False, default=0)  #: done

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise BadInputError("shares in (0, 1], at least one", field="contexts.shares")
        check_wording(self.wording)

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        if self.steps >= self.cold_start:
            return list(items)
        return [self._hinted(item, self.shares[0]) if row_text(item, self.solution) else item for item in items]

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """Generate the groups without a right answer again, with the share of this round."""
        if round > len(self.shares):
            return []
        return [
            ResampleRequest(uid, self._hinted(item, self.shares[round - 1]))
            for uid, item, acc in group_accuracies(batch)
            if acc == 0 and row_text(item, self.solution)
        ]

    def _hinted(self, item: PromptItem, share: float) -> PromptItem:
        prompt = with_hint(item.prompt, hint_of(row_text(item, self.solution), share), self.wording)
        return replace(item, generate_from=prompt, train_on=prompt, source=HINTED)

    def observe(self, report: StepReport) -> None:
        self.steps = report.step


GUIDED = "guided"


class Guide(RecipeSettings, section="contexts"):
    """S1. `threshold`: a group whose mean `acc` is at most this is generated again; `hint`: the entry that is shown."""

    threshold: Annotated[float, Ge(0), Lt(1)] = 0.001
    hint: str = "hint"
    wording: str = "\n\nHint: {hint}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_wording(self.wording)

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for a behaviour correction, or an objective that is one: a guided row's old and mu are
        of different contexts."""
        if recipe.corrections:
            raise BadInputError("guided rows have no sampler to be corrected for", field="corrections")
        if getattr(recipe.objective, "corrects_behaviour", False):
            raise BadInputError("divides by what the sampler saw, of guided rows the hint too", field="objective")

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        return list(items)

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """Once: the hinted rows replace the first ones."""
        if round > 1:
            return []
        return [
            ResampleRequest(uid, replace(item, generate_from=with_hint(item.prompt, hint, self.wording), source=GUIDED))
            for uid, item, acc in group_accuracies(batch)
            if acc <= self.threshold and (hint := row_text(item, self.hint))
        ]
