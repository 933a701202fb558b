"""Agent-RLVR: a task that fails is tried again with guidance, and learnt without it.

Covers: groups in which no episode succeeds are run again with guidance in the prompt: the row's own (`hint`), and what
the environment said of a failed episode (`Done.feedback`, else the last error of a tool), such as the messages of
failing tests. The rows of the second attempt replace those of the first, or join them. They are trained on the
prompt without guidance, which is not there when the policy is used. Source: arXiv 2506.11425 (its abstract and second
hand accounts; the guidance there is written by a teacher model, and the update is DPO on pairs of a right and a wrong
trajectory). Leaves out: a teacher; the objective (`guide`, or GRPO's).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from annotated_types import Ge, Lt

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.hints import GUIDED, check_wording, row_text, with_hint
from assay_policy_training.plugins.protocols import ResampleRequest


def guidance_of(record: Mapping[str, Any]) -> str:
    """What the record of a failed episode says of its failure; empty where it says nothing."""
    if feedback := str(record.get("feedback") or ""):
        return feedback
    turns = record["turns"]
    errors = [result["content"] for turn in turns for result in turn["results"] if result["error"]]
    return str(errors[-1]) if errors else ""


class GuidedRetry(RecipeSettings, section="contexts"):
    """S1. A group whose mean outcome is at most `threshold` is tried again, `rounds` times: by `part` of the reward, or
    by the verifier where none is named. `hint`: the row's entry that guides, before what the episode said of its
    failure. `keep`: whether the failed rows stay in the group. `learn_guided`: whether rows are trained on with the
    guidance that they were made with."""

    part: str = ""
    threshold: Annotated[float, Ge(0), Lt(1)] = 0.0
    rounds: Annotated[int, Ge(1)] = 1
    hint: str = "hint"
    wording: str = "\n\nHint: {hint}"
    keep: bool = False
    learn_guided: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_wording(self.wording)

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        return list(items)

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """The groups that failed, with guidance from their first episode that says something."""
        if round > self.rounds:
            return []
        outcome = batch.r_parts[self.part] if self.part else batch.acc
        members: dict[str, list[int]] = {}
        for row, uid in enumerate(batch.uid):
            members.setdefault(uid, []).append(row)
        requests = []
        for uid, rows in members.items():
            if outcome is None or not float(outcome[rows].nanmean()) <= self.threshold:
                continue
            item = batch.items[rows[0]]
            said = (guidance_of(batch.items[row].meta[EPISODE]) for row in rows if EPISODE in batch.items[row].meta)
            guidance = "\n".join(filter(None, (row_text(item, self.hint), next(filter(None, said), ""))))
            if guidance:
                requests.append(ResampleRequest(uid, self._guided(item, guidance), replace=not self.keep))
        return requests

    def _guided(self, item: PromptItem, guidance: str) -> PromptItem:
        prompt = with_hint(item.prompt, guidance, self.wording)
        meta = {name: value for name, value in item.meta.items() if name != EPISODE}
        trained = prompt if self.learn_guided else item.prompt
        return replace(item, meta=meta, generate_from=prompt, train_on=trained, source=GUIDED)
