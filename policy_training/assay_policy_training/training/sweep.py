"""Policies of one `--seeds` or `--sweep`: how one of the group is trained, and its held-out figures.

Settings are chosen by the first held-out set, after training; the second, if any, gives figures that were not chosen
by. Leaves out: what of a group is due, and comparing (`assay.runs.sweep`); opening rewards (the caller does).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from assay.errors import BadInputError, NotFoundError
from assay.ids import rows_digest
from assay.runs.sweep import FinishedRun, GroupMember, GroupRun, data_content
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.recipe.loading import recipe_to_dict
from assay_policy_training.training.checkpoint import checkpoints
from assay_policy_training.training.run import Plan

#: What may differ between runs that are compared, or between a run and its resumption.
_FREE = ("name", "force", "recipe", "parallel", "device", "track", "on", "reward_timeout", "on_reward_error")
_FREE_OF_RECIPE = ("checkpoint_every", "checkpoint_minutes")
_FIGURES = ("pass_rate", "reward_mean", "length_mean", "kl_k3")  #: of one that is not asked for, the first is chosen by
LOWER_IS_BETTER = ("kl_k3",)
NEITHER_IS_BETTER = ("length_mean", "kl_k3")  #: unless asked for


def group_content(
    workspace: Workspace, plan: Plan, prompts: Sequence[PromptItem], held_out: Mapping[str, Sequence[PromptItem]]
) -> str:
    """Identity of the prompts that a group trains and is compared on, and of the files of its reward functions."""
    sets = {"": prompts, **held_out}
    rows = rows_digest((name, item.to_dict()) for name, items in sets.items() for item in items)
    files = [reward.rpartition(":")[0].rpartition("=")[2] for reward in plan.rewards]
    return f"{rows}-{data_content(workspace, files)}"


class PolicyGroup:
    """`assay.runs.sweep.GroupTraining` of `train_policy`. `train`: given a plan and the run to resume."""

    kind = "rl"

    def __init__(
        self, workspace: Workspace, members: Sequence[GroupMember[Plan]], train: Callable[[Plan, str | None], object]
    ) -> None:
        self.workspace, self._train = workspace, train
        rewards = {json.dumps(recipe_to_dict(member.plan.recipe)["reward"], default=str) for member in members}
        self._one_reward = len(rewards) == 1  # else its mean is not one figure to compare by

    def last_interrupted(self, plan: Plan) -> str | None:
        for file in sorted(self.workspace.runs.glob(f"*/{Plan.plan_file}"), reverse=True):
            run = file.parent
            with suppress(NotFoundError):
                saved = Plan.read_payload(self.workspace, run.name)
                if (saved.get("group"), saved.get("name")) != (plan.group, plan.name) or not checkpoints(run):
                    continue
                old, new = self.compared(saved), self.compared(plan)
                if changed := sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
                    reason = f"{run.name} has other settings ({', '.join(changed)}): give those or another --name"
                    raise BadInputError(reason, field="--seeds, --sweep")
                return run.name
        return None

    def train(self, plan: Plan, *, resume: str | None, force: bool) -> None:
        self._train(replace(plan, force=force), resume)

    def compared(self, plan: Plan | Mapping[str, Any]) -> dict[str, Any]:
        record = plan if isinstance(plan, Mapping) else json.loads(json.dumps(plan.to_dict(), default=str))
        settings = {name: record.get(name) for name in Plan.__dataclass_fields__ if name not in _FREE}
        recipe = {f"recipe.{name}": v for name, v in record["recipe"].items() if name not in _FREE_OF_RECIPE}
        return settings | recipe

    def measured(self, member: GroupMember[Plan], finished: FinishedRun) -> GroupRun:
        run, model, _, metrics = finished
        after = [each["after"] for each in (metrics.get("sets") or {"": metrics}).values()]
        by_set = [self._figures(evaluation) for evaluation in after if evaluation]
        chosen_by, final = [*by_set, {}, {}][:2]
        early = metrics.get("stopped_early")
        return GroupRun(member, run, chosen_by, final, model, warnings=(f"stopped early: {early}",) if early else ())

    def _figures(self, evaluation: Mapping[str, Any]) -> dict[str, float]:
        values = {**evaluation, "pass_rate": (evaluation.get("verifier") or {}).get("share")}
        names = [name for name in _FIGURES if name != "reward_mean" or self._one_reward]
        return {name: float(values[name]) for name in names if values.get(name) is not None}
