"""Policy training in Python: what `assay rl` runs, as an object.

    trainer = PolicyTrainer.from_recipe("grpo", reward=my_function, prompts=rows, policy="smollm2", workspace="demo")
    trained = trainer.train()

Covers: a plan from keyword arguments, the prompts and rewards that it names, opened. Leaves out: the recorded run
(`training.run`), the loop (`training.loop`), several processes (`assay rl` under torchrun).
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from assay.data.row_files import Data, named_data
from assay.errors import BadInputError
from assay.models.parallelism.distributed import Parallel
from assay.registry import unknown
from assay.runs.callbacks import Callback
from assay.runs.model_run import model_folder
from assay.workspace import Workspace
from assay_policy_training.plugins.prompts.mixtures import (
    absolute_source,
    held_out_sets,
    load_mixture,
    mixed_order,
)
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.functions.source import FunctionReward
from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
from assay_policy_training.rollouts.reward_uri import recorded_reward
from assay_policy_training.training.config import PolicyRunConfig
from assay_policy_training.training.run import Plan, TrainedPolicy, train_policy

#: A function (its parameters' names say how it is called), a source, or a text as `assay rl --reward` reads it.
Reward: TypeAlias = str | Callable[..., Any] | RewardSource
#: Options beside those of `PolicyRunConfig` -> the key of a recipe that each of them sets.
RECIPE_OPTIONS = {
    "steps": "steps",
    "seed": "seed",
    "lr": "optimisation.lr",
    "prompts_per_step": "sampling.prompts_per_step",
    "group_size": "sampling.group_size",
    "max_new_tokens": "sampling.max_new_tokens",
    "stop": "sampling.stop",
    "chat_template": "chat.template",
    "chat_kwargs": "chat.kwargs",
    "system_prompt": "chat.system",
}


class PolicyTrainer:
    """One policy training of a workspace. `rewards`, `watch`: instead of those that the plan names, which `train`
    opens. Reads the prompts; raises BadInputError for a plan that cannot run."""

    def __init__(
        self,
        workspace: Workspace,
        plan: Plan,
        *,
        rewards: Sequence[Reward] | None = None,
        watch: Sequence[Reward] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        if plan.evaluation_prompts and not plan.evaluate:
            raise BadInputError("say how many of them: --evaluate N", field="--eval-prompts")
        if not plan.rewards:
            raise BadInputError("name a reward: file.py:function, the URL of a server, or verifier", field="--reward")
        if "/" in plan.name or plan.name.startswith("."):
            raise BadInputError(f"a name is one word, not {plan.name!r}", field="--name")
        self.workspace, self.plan, self.callbacks = workspace, plan, list(callbacks)
        self.rewards: Sequence[Reward] = plan.rewards if rewards is None else rewards
        self.watch: Sequence[Reward] = plan.watch if watch is None else watch
        reading = {"seed": plan.recipe.seed, "columns": plan.columns_by_field, "workspace": workspace}
        self.prompts = load_mixture(plan.prompts, **reading)
        sources = plan.evaluation_prompts or (f"constrained:{plan.evaluate}",)
        self.held_out = held_out_sets(sources, plan.evaluate, **reading) if plan.evaluate else {}

    @classmethod
    def from_recipe(
        cls,
        recipe: str,
        *,
        reward: Reward | Sequence[Reward],
        prompts: Data | Mapping[str, float] = "constrained:64",
        policy: str = "smollm2",
        eval_prompts: Data | Mapping[str, Data] | None = None,
        workspace: Workspace | str | Path | None = None,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        watch: Reward | Sequence[Reward] = (),
        callbacks: Sequence[Callback] = (),
        **options: Any,
    ) -> "PolicyTrainer":
        """A training by a shipped recipe, or a YAML file.

        `prompts`: a source as `assay rl --prompts` names it, sources with their weights, or rows: texts, or mappings
        as the objects of a file. `eval_prompts`: held-out ones, of several sets by name; all of them are used unless
        `evaluate` says how many. `workspace`: a folder is made one; None: as `assay` finds it. `name`:
        None is POLICY-RECIPE, or its next version (-v2, ...). `settings`: keys of the
        recipe, `{"kl.coefficient": 0.01}`. `options`: any of `RECIPE_OPTIONS` and of the fields of `PolicyRunConfig`.
        """
        space = Workspace.of(workspace)
        rewards, watched = _several(reward), _several(watch)
        run_options = {field.name for field in fields(PolicyRunConfig)} - {"rewards", "evaluation_prompts"}
        for option in options.keys() - run_options - RECIPE_OPTIONS.keys():
            raise unknown("option", option, run_options | RECIPE_OPTIONS.keys())
        keys = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (settings or {}).items()]
        chosen = load_recipe(recipe, [*keys, *recipe_overrides(options)])
        config = {option: value for option, value in options.items() if option in run_options}
        if isinstance(columns := config.get("columns"), Mapping):
            config["columns"] = tuple(f"{field}={column}" for field, column in columns.items())
        sets = eval_prompts if isinstance(eval_prompts, Mapping) else {"held-out": eval_prompts}
        held_out = [f"{name}={named_data(space, data)}" for name, data in sets.items() if data is not None]
        if held_out and "evaluate" not in config:
            config["evaluate"] = sys.maxsize
        weights = prompts if isinstance(prompts, Mapping) else None
        plan = new_plan(
            PolicyRunConfig(
                **config,
                policy=policy,
                rewards=tuple(map(_reference, rewards)),
                watch=tuple(map(_reference, watched)),
                prompts=tuple(f"{source}@{weight}" for source, weight in weights.items())
                if weights is not None
                else (named_data(space, prompts),),
                evaluation_prompts=tuple(held_out),
            ),
            chosen,
            name,
        )
        if name is None:
            plan = replace(plan, name=model_folder(space, plan.name, force=True).name)
        trainer = cls(space, plan, rewards=rewards, watch=watched, callbacks=callbacks)
        longest = max(map(len, trainer.held_out.values()), default=0)
        trainer.plan = replace(plan, evaluate=min(plan.evaluate, longest))
        return trainer

    def train(
        self, *, resume: str | None = None, on_start: Callable[[Path], None] = lambda folder: None
    ) -> TrainedPolicy:
        """Train, evaluate and save the policy as a recorded run. Parameters and errors as of `train_policy`."""
        with ExitStack() as stack:
            return train_policy(
                self.workspace,
                self.plan,
                self.prompts,
                [self._opened(reward, stack) for reward in self.rewards],
                held_out=self.held_out,
                watched=[self._opened(reward, stack) for reward in self.watch],
                resume=resume,
                on_start=on_start,
                callbacks=self.callbacks,
            )

    def _opened(self, reward: Reward, stack: ExitStack) -> RewardSource:
        calls, device = self.plan.calls, self.plan.device
        if isinstance(reward, str):
            names, keys = [recorded_reward(reward, None, workspace=self.workspace)], keys_of([reward], None)
            return open_rewards(stack, names, keys, wait=None, deadline=600.0, calls=calls, device=device)[0]
        if isinstance(reward, RewardSource):
            return reward
        function = FunctionReward(reward, settings=calls)
        stack.callback(function.close)
        return function


def new_plan(config: PolicyRunConfig, recipe: Recipe, name: str | None = None, *, parallel: Parallel = "auto") -> Plan:
    """The plan of a new run, with files by absolute path. Default name: POLICY-RECIPE."""
    sources = {
        "prompts": tuple(map(absolute_source, config.prompts)),
        "evaluation_prompts": tuple(map(absolute_source, config.evaluation_prompts)),
    }
    return Plan(
        **{**config.__dict__, **sources},
        recipe=replace(recipe, source=mixed_order(sources["prompts"], recipe.source)),
        name=name or f"{config.policy.rstrip('/').split('/')[-1]}-{recipe.name}",
        parallel=parallel,
    )


def recipe_overrides(values: Mapping[str, Any]) -> list[str]:
    """The values of `RECIPE_OPTIONS` as `load_recipe` reads them, without those that are None."""
    return [
        f"{key}={json.dumps(values[name], ensure_ascii=False)}"
        for name, key in RECIPE_OPTIONS.items()
        if values.get(name) is not None
    ]


def _several(reward: Reward | Sequence[Reward]) -> list[Reward]:
    return list(reward) if isinstance(reward, Iterable) and not isinstance(reward, str) else [reward]


def _reference(reward: Reward) -> str:
    """As the record has it."""
    if isinstance(reward, str):
        return recorded_reward(reward, None)
    return f"{reward.__module__}:{getattr(reward, '__qualname__', type(reward).__name__)}"
