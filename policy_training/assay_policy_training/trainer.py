"""Policy training in Python: what `assay rl` runs, as an object.

    PolicyTrainer.from_recipe("grpo", reward=my_function, prompts=rows, policy="smollm2", workspace="demo").train()

Leaves out: the recorded run (`training.run`), the loop (`training.loop`), several processes (`assay rl` in torchrun).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from assay.data.row_files import Data, named_data
from assay.errors import BadInputError
from assay.models.parallelism.distributed import Parallel, world_size
from assay.registry import check_names
from assay.runs.callbacks import Callback
from assay.runs.model_run import model_folder
from assay.runs.record import Run
from assay.workspace import Workspace
from assay_policy_training.plugins.prompts import mixtures
from assay_policy_training.plugins.protocols import RewardSource, StepMetrics
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.functions.source import FunctionReward
from assay_policy_training.rollouts.image_prompts import check_image_prompts
from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
from assay_policy_training.rollouts.reward_uri import recorded_reward
from assay_policy_training.training.config import BEST_BY, PolicyRunConfig
from assay_policy_training.training.run import Plan, TrainedPolicy, train_policy

#: A function (its parameters' names say how it is called), a source, or a text as `assay rl --reward` reads it.
Reward: TypeAlias = str | Callable[..., Any] | RewardSource
#: Option of `assay rl` -> the key of a recipe that it sets; the others are of `PolicyRunConfig`.
RECIPE_OPTIONS = {
    "steps": "steps",
    "seed": "seed",
    "lr": "optimisation.lr",
    "stop": "sampling.stop",
    "chat_template": "chat.template",
    "chat_kwargs": "chat.kwargs",
    "system_prompt": "chat.system",
    **{name: f"sampling.{name}" for name in ("prompts_per_step", "group_size", "max_new_tokens")},
}


#: Fields of `PolicyRunConfig` -> arguments of `from_recipe` that they come from.
_ARGUMENTS = {"rewards": "reward", "evaluation_prompts": "eval_prompts"}
#: What TRL calls what is here.
_TRL = {
    "model": "policy",
    "reward_funcs": "reward",
    "train_dataset": "prompts",
    "eval_dataset": "eval_prompts",
    "eval_steps": "eval_every",
    "learning_rate": "lr",
    "max_steps": "steps",
    "num_generations": "group_size",
    "max_completion_length": "max_new_tokens",
    "output_dir": "workspace",
    "report_to": "track",
    "beta": "settings={'kl.coefficient': ...}",
    "temperature": "settings={'sampling.temperature': ...}",
}


class PolicyTrainer:
    """One policy training of a workspace. `rewards` and `watch` are opened by `train`; they begin as the plan names
    them. `extra`: as of `train_policy`. Reads the prompts; raises BadInputError for a plan that cannot run."""

    def __init__(self, workspace: Workspace, plan: Plan, callbacks: Sequence[Callback] = ()) -> None:
        if plan.evaluation_prompts and not plan.evaluate:
            raise BadInputError("say how many of them: --evaluate N", field="--eval-prompts")
        if not plan.rewards:
            known = "file.py:function, the URL of a server, verifier, or environment (those that the environment gives)"
            raise BadInputError(f"name a reward: {known}", field="--reward")
        if "/" in plan.name or plan.name.startswith("."):
            raise BadInputError(f"a name is one word, not {plan.name!r}", field="--name")
        if plan.recipe.environment is not None:
            plan.recipe.environment.check()
        self.workspace, self.plan, self.callbacks = workspace, plan, callbacks
        self.rewards: Sequence[Reward] = plan.rewards
        self.watch: Sequence[Reward] = plan.watch
        self.extra: Callable[[Run], Sequence[StepMetrics]] = lambda run: ()
        reading = {"seed": plan.recipe.seed, "columns": plan.columns_by_field, "workspace": workspace}
        self.prompts = mixtures.load_mixture(plan.prompts, **reading)
        sources = plan.evaluation_prompts or (f"constrained:{plan.evaluate}",)
        self.held_out = mixtures.held_out_sets(sources, plan.evaluate, **reading) if plan.evaluate else {}
        if plan.best_by == BEST_BY and len(self.held_out) > 1:  # whose metrics have the sets' names
            self.plan = replace(plan, best_by=BEST_BY.replace("eval", f"eval_{next(iter(self.held_out))}", 1))
        every = [*self.prompts, *(item for items in self.held_out.values() for item in items)]
        check_image_prompts(plan.recipe, every, processes=world_size())

    @classmethod
    def from_recipe(
        cls,
        recipe: str,
        *,
        reward: Reward | Sequence[Reward] = (),
        prompts: Data = "constrained:64",
        policy: str = "smollm2",
        eval_prompts: Data | Mapping[str, Data] | None = None,
        workspace: Workspace | str | Path | None = None,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        **options: Any,
    ) -> "PolicyTrainer":
        """A training by a shipped recipe, or a YAML file. `prompts`: a source as `assay rl` names it, or rows.
        `eval_prompts`: held-out ones, of several sets by name; of each the first `evaluate` (64). `workspace`: a folder
        is made one; None: as `assay` finds it. `name`: None is POLICY-RECIPE, or its next version. `settings`: keys of
        the recipe, `{"kl.coefficient": 0.01}`. `options`: `RECIPE_OPTIONS` and fields of `PolicyRunConfig`."""
        fields_of_run = PolicyRunConfig.__dataclass_fields__
        check_names(options, {*RECIPE_OPTIONS, *fields_of_run} - _ARGUMENTS.keys(), {**_TRL, **_ARGUMENTS})
        here = Workspace.of(workspace)
        rewards: list[Reward] = [*reward] if isinstance(reward, Sequence) and not isinstance(reward, str) else [reward]
        rewards = [recorded_reward(r, None, workspace=here) if isinstance(r, str) else r for r in rewards]
        keys = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (settings or {}).items()]
        sets = eval_prompts if isinstance(eval_prompts, Mapping) else {"held-out": eval_prompts}
        held_out = [f"{label}={named_data(here, data)}" for label, data in sets.items() if data is not None]
        of_run = {option: value for option, value in options.items() if option not in RECIPE_OPTIONS}
        config = PolicyRunConfig(
            policy=policy,
            rewards=tuple(map(_reference, rewards)),
            prompts=(named_data(here, prompts),),
            evaluation_prompts=tuple(held_out),
            watch=tuple(recorded_reward(each, None, "--watch", here) for each in of_run.pop("watch", ())),
            **{"evaluate": 64 if held_out else 0, **of_run},
        )
        plan = new_plan(config, load_recipe(recipe, [*keys, *recipe_overrides(options)]), name)
        if name is None:
            plan = replace(plan, name=model_folder(here, plan.name, force=True).name)
        trainer = cls(here, plan, callbacks)
        trainer.rewards = rewards
        return trainer

    def train(self, *, resume: str | None = None, on_start: Callable[[Path], None] = lambda _: None) -> TrainedPolicy:
        """Train, evaluate and save the policy as a recorded run. Parameters and errors as of `train_policy`."""
        with ExitStack() as stack:
            return train_policy(
                self.workspace,
                self.plan,
                self.prompts,
                self._opened(self.rewards, stack),
                held_out=self.held_out,
                watched=self._opened(self.watch, stack, "--watch"),
                resume=resume,
                on_start=on_start,
                callbacks=self.callbacks,
                extra=self.extra,
            )

    def _opened(self, rewards: Sequence[Reward], stack: ExitStack, option: str = "--reward") -> list[RewardSource]:
        """$ASSAY_API_KEY goes to the first reward's host only, as in `assay rl`."""
        plan, references = self.plan, [reward for reward in rewards if isinstance(reward, str)]
        keys = keys_of(references, None) if option == "--reward" else [""] * len(references)
        opening: dict[str, Any] = {"wait": None, "deadline": 600.0, "option": option, "device": plan.device}
        opened = iter(open_rewards(stack, references, keys, **opening, calls=plan.calls))
        sources: list[RewardSource] = []
        for reward in rewards:
            if isinstance(reward, str):
                sources.append(next(opened))
            elif isinstance(reward, RewardSource):
                sources.append(reward)
            else:
                sources.append(stack.enter_context(closing(FunctionReward(reward, settings=plan.calls))))
        return sources


def new_plan(config: PolicyRunConfig, recipe: Recipe, name: str | None = None, *, parallel: Parallel = "auto") -> Plan:
    """The plan of a new run, with files by absolute path. Default name: POLICY-RECIPE."""
    prompts, evaluation_prompts = (
        tuple(map(mixtures.absolute_source, sources)) for sources in (config.prompts, config.evaluation_prompts)
    )
    return Plan(
        **{**config.__dict__, "prompts": prompts, "evaluation_prompts": evaluation_prompts},
        recipe=replace(recipe, source=mixtures.mixed_order(prompts, recipe.source)),
        name=name or f"{config.policy.rstrip('/').split('/')[-1]}-{recipe.name}",
        parallel=parallel,
    )


def recipe_overrides(options: Mapping[str, Any]) -> list[str]:
    """Those of `RECIPE_OPTIONS` that are not None, as `load_recipe` reads them."""
    values = {key: options.get(option) for option, key in RECIPE_OPTIONS.items()}
    return [f"{key}={json.dumps(v, ensure_ascii=False)}" for key, v in values.items() if v is not None]


def _reference(reward: Reward) -> str:
    """As the record has it."""
    if isinstance(reward, str):
        return reward
    if not callable(reward) and not isinstance(reward, RewardSource):
        raise BadInputError(
            f"a function, a RewardSource, or a text as --reward takes it, not {reward!r}", field="reward"
        )
    return f"{reward.__module__}:{getattr(reward, '__qualname__', type(reward).__name__)}"
