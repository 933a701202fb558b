"""`assay rl`: train a policy against a reward. Heavy imports happen inside the command."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.help_panels import option_panels
from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.resume import is_given, refuse_changes
from assay.cli.settings_options import settings_options
from assay.cli.sweep import SeedsOption, SweepOption, SweepOptions, members_of, run_group, show_group, sweep_options
from assay.errors import BadInputError
from assay.planning.request import plan_progress, requested
from assay_policy_training.core.response_options import ConversationOptions
from assay_policy_training.training.config import PolicyRunConfig

if TYPE_CHECKING:
    from assay.workspace import Workspace
    from assay_policy_training.training.evaluation import PolicyEvaluation
    from assay_policy_training.training.run import Plan, TrainedPolicy

#: Options that are not part of a plan.
_COMMAND_ONLY = ("resume", "api_key", "watch_key", "wait", "deadline", "outage", "workspace", "as_json")
#: What may be changed when a run resumes; everything else is fixed by its plan.
_CHANGEABLE_SETTINGS = ("on", "reward_timeout", "on_reward_error")
CHANGEABLE = frozenset(("steps", "name", "rewards", "parallel", *_CHANGEABLE_SETTINGS, *_COMMAND_ONLY))


def register(app: typer.Typer) -> None:
    app.command("rl")(rl)
    app.command("recipes")(recipes)
    app.command("export-policy")(export_policy)


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Show this one: a name, or a YAML file.", show_default=False)
    ] = None,
    task: Annotated[
        str | None, typer.Option("--for", metavar="TASK", help='Propose recipes, e.g. "verifiable maths, 1 GPU".')
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes of policy training, or show one with its comments: what it follows and what was checked.

    Example: `assay recipes dapo`
    """
    from assay_policy_training.recipe.proposals import propose
    from assay_policy_training.recipe.shipped import headlines, recipe_sections, recipe_text

    if name is not None:
        emit(recipe_sections(name), recipe_text(name).rstrip(), as_json=as_json)
        return
    recipe_headlines = headlines()
    if task is not None:
        from dataclasses import asdict

        proposals = propose(task, {recipe: recipe_text(recipe) for recipe in recipe_headlines})
        lines = []
        for proposal in proposals:
            paper, title = recipe_headlines[proposal.recipe]
            lines.append(f"{proposal.recipe}: {title} {paper}".rstrip())
            lines.append(f"    {', '.join(proposal.traits)}; matches {', '.join(proposal.matches) or 'no word'}")
        emit({"proposals": [asdict(proposal) for proposal in proposals]}, "\n".join(lines), as_json=as_json)
        return
    width = max(len(recipe) for recipe in recipe_headlines)
    # A report without a number has its title in quotes after it; the recipe itself shows that.
    short = {recipe: paper.partition(' "')[0] for recipe, (paper, _) in recipe_headlines.items()}
    lines = [f"{recipe:<{width}}  {short[recipe]:<16}  {title}" for recipe, (_, title) in recipe_headlines.items()]
    payload = {recipe: {"paper": paper, "title": title} for recipe, (paper, title) in recipe_headlines.items()}
    emit(payload, "\n".join(lines), as_json=as_json)


def export_policy(
    run: Annotated[str, typer.Argument(metavar="RUN")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write, which is not there yet.")],
    at: Annotated[str, typer.Option(metavar="newest|best|STEP", help="Which checkpoint.")] = "newest",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a checkpoint of a run, finished or going on, as a stock transformers model.

    Example: `assay export-policy run-20261124-101500-3fa2c1 --at best --to best-so-far`
    """
    from assay.workspace import Workspace
    from assay_policy_training.training import export

    step = export.export_policy(Workspace.find(workspace), run, at, to)
    emit({"run": run, "step": step, "folder": str(to)}, f"policy of step {step} of {run}: {to}", as_json=as_json)


@option_panels(
    {
        "Recipe": ("prompts_per_step", "seed", "overrides", "seeds", "sweep"),
        "Prompts and their form": ("columns", "chat_template", "chat_kwargs", "system_prompt", "stop"),
        "Evaluation and checkpoints": (
            *("eval_every", "evaluation_prompts", "keep", "best_by", "keep_checkpoints", "watch", "watch_share"),
            *("watch_key", "track", "resume"),
        ),
        "Rewards": ("model", "api_key", "reward_timeout", "on_reward_error", "wait", "deadline", "outage"),
        "Machine": ("device", "parallel", "on"),
        "Output": ("workspace", "as_json"),
    },
    first=(
        *("recipe", "policy", "rewards", "prompts", "steps", "lr", "group_size", "max_new_tokens", "evaluate", "name"),
        "context",
    ),
    others_panel="More",
)
@settings_options(ConversationOptions)
@settings_options(PolicyRunConfig)
def rl(
    context: typer.Context,
    config: PolicyRunConfig,
    conversation: ConversationOptions,
    recipe: Annotated[str, typer.Option(help="Name of a shipped recipe (`assay recipes`), or a YAML file.")] = "grpo",
    steps: Annotated[int | None, typer.Option(help="Total steps. Default: the recipe's.")] = None,
    prompts_per_step: Annotated[int | None, typer.Option(help="Default: the recipe's.")] = None,
    group_size: Annotated[int | None, typer.Option(help="Rollouts per prompt. Default: the recipe's.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Default: the recipe's.")] = None,
    lr: Annotated[float | None, typer.Option(help="Default: the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the recipe's.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, e.g. kl.coefficient=0.01."),
    ] = None,
    seeds: SeedsOption = None,
    sweep: SweepOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the new policy. Default: POLICY-RECIPE.")] = None,
    model: Annotated[str | None, typer.Option(help="The model of the reward server.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="ASSAY_API_KEY", help="API key of the first reward server, and of others at its host."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            help="Seconds to wait until the reward server is ready. Default: 60 while it loads its model, 3 for an "
            "address where nothing answers.",
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds for one request to a reward server, retries included.")
    ] = 600.0,
    outage: Annotated[
        float,
        typer.Option(help="Seconds for which a reward server that answered before is waited for, the rollouts held."),
    ] = 1800.0,
    watch_key: Annotated[
        str | None,
        typer.Option(envvar="ASSAY_WATCH_API_KEY", help="API key of the held-out reward's server."),
    ] = None,
    parallel: Annotated[
        str | None,
        typer.Option(help="ddp or fsdp: how the processes of torchrun divide the work. Default under torchrun: ddp."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Resume from the newest checkpoint of this run.")
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a policy with rewards from servers and verifiers, and save it in the workspace.

    Writes metrics.jsonl and rollouts.jsonl into the run's folder. A rollout whose score failed is masked and
    counted, never scored 0. With --resume the plan is the old run's; only --steps, --name, --reward, --reward-timeout,
    --on-reward-error, --parallel and --on may change. In several processes:
    `torchrun --nproc-per-node 2 -m assay.cli rl ...`. --seeds and --sweep (an option, or a key of the recipe such as
    kl.coefficient) train several and compare them on the first of --eval-prompts.

    Example: `assay rl --recipe grpo --reward http://127.0.0.1:8700 --prompts constrained:64 --steps 20 --lr 1e-5`
    """
    from assay.models.parallelism.distributed import is_follower, parse_parallel, world_size
    from assay.runs.record import require_unfinished
    from assay.workspace import Workspace
    from assay_policy_training.recipe.loading import load_recipe, refuse_contradictions
    from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
    from assay_policy_training.rollouts.reward_uri import recorded_reward
    from assay_policy_training.trainer import PolicyTrainer, new_plan, recipe_overrides
    from assay_policy_training.training.run import Plan

    request = requested()
    opening: dict[str, Any] = {"wait": wait, "deadline": deadline, "outage": outage}
    if is_follower():  # another process has the workspace; this one trains with it
        from assay_policy_training.training.distributed import run_worker

        with ExitStack() as stack:
            run_worker(
                lambda run: open_rewards(
                    stack, run.rewards, keys_of(run.rewards, api_key), **opening, calls=run.calls, device=run.device
                )
            )
        return
    target: Any = Workspace.find(workspace) if request is None else Workspace.find_optional(workspace)
    rewards = tuple(recorded_reward(reference, model, workspace=target) for reference in config.rewards)
    group = sweep_options(seeds, sweep)
    if group is not None and resume is not None:
        raise BadInputError("the same command goes on with what is missing: leave it out", field="--resume")
    if resume is not None:
        flags = {"overrides": "--set", "evaluation_prompts": "--eval-prompts", "columns": "--column"}
        refuse_changes(context, {*CHANGEABLE, "model"} if rewards else CHANGEABLE, flags)
        plan = Plan.read(target, resume)
        if steps is None or steps <= plan.recipe.steps:
            require_unfinished(target, resume)
        same_parallel = plan.parallel if world_size() > 1 and plan.parallel != "none" else "auto"
        plan = replace(
            plan,
            recipe=replace(plan.recipe, steps=plan.recipe.steps if steps is None else steps),
            name=name or plan.name,
            rewards=rewards or plan.rewards,
            **{
                name: getattr(config, name)
                for name in ("on", "reward_timeout", "on_reward_error")
                if is_given(context, name)
            },
            parallel=parse_parallel(parallel) if parallel else same_parallel,
        )
    else:
        options = {
            "steps": steps,
            "seed": seed,
            "lr": lr,
            "prompts_per_step": prompts_per_step,
            "group_size": group_size,
            "max_new_tokens": max_new_tokens,
            "stop": conversation.stop or None,
            "chat_template": conversation.template,
            "system_prompt": conversation.system,
        }
        variables = [f"chat.kwargs.{text}" for text in conversation.chat_kwargs]
        watch = tuple(recorded_reward(reference, None, "--watch", target) for reference in config.watch)

        def planned(chosen: Mapping[str, Any]) -> "Plan":
            """With these values of options, and of keys of the recipe, in place of the command line's."""
            keys = [*(overrides or ()), *(f"{key}={value}" for key, value in chosen.items() if "." in key)]
            of_run = {key: value for key, value in chosen.items() if hasattr(config, key)}
            of_recipe = recipe_overrides({**options, **chosen})
            return new_plan(
                replace(config, **{"rewards": rewards, "watch": watch, **of_run}),
                load_recipe(chosen.get("recipe", recipe), [*keys, *of_recipe, *variables]),
                name,
                parallel=parse_parallel(parallel or "auto"),
            )

        by_option = [
            (f"--{key.replace('_', '-')}", text) for key in options for text in recipe_overrides({key: options[key]})
        ]
        refuse_contradictions(overrides or (), [*by_option, *(("--chat-kwargs", text) for text in variables)])
        plan = planned({})
        if request is not None:
            from assay.planning.cards import find_card
            from assay.planning.known_plans import keep_plan, prompts_of
            from assay.runs.record import locate_model
            from assay_policy_training.training.plan import longest_prompt, plan_policy

            base = locate_model(target, plan.policy)[0]
            if request.prompt_tokens is None:
                request = replace(request, prompt_tokens=longest_prompt(plan, base, target))
            with plan_progress() as advance:
                estimate = plan_policy(plan, base, find_card(request.card), request, advance)
            keep_plan(estimate, base, plan.memory_settings, request.ranks, prompts_of(request.prompt_length))
            emit(estimate.to_dict(), str(estimate), as_json=as_json)
            return

    def train(plan: "Plan", resume: str | None, held_out: Mapping[str, Any] | None = None) -> "TrainedPolicy":
        trainer = PolicyTrainer(target, plan)
        trainer.held_out = trainer.held_out if held_out is None else held_out
        with ExitStack() as stack:
            keys = keys_of(plan.rewards, api_key)
            options = {**opening, "calls": plan.calls, "device": plan.device}
            trainer.rewards = open_rewards(stack, plan.rewards, keys, **options)
            # "" and not None, for which the client would take $ASSAY_API_KEY: that key is the other server's.
            keys = [watch_key or ""] * len(plan.watch)
            trainer.watch = open_rewards(stack, plan.watch, keys, **options, option="--watch")
            with _resume_hint(plan.recipe.checkpoint_every) as started:
                return trainer.train(resume=resume, on_start=started)

    if group is not None:
        _train_group(context, target, group, plan, planned, train, as_json=as_json)
        return
    trained = train(plan, resume)
    emit(_payload(trained), _text(trained), as_json=as_json)


def _train_group(
    context: typer.Context,
    workspace: "Workspace",
    options: SweepOptions,
    first: "Plan",
    planned: Callable[[Mapping[str, Any]], "Plan"],
    train: Callable[..., "TrainedPolicy"],
    *,
    as_json: bool,
) -> None:
    from assay.models.parallelism.distributed import world_size
    from assay.runs.sweep import compare_group
    from assay.system.plurals import counted
    from assay_policy_training.trainer import RECIPE_OPTIONS, PolicyTrainer
    from assay_policy_training.training.sweep import LOWER_IS_BETTER, NEITHER_IS_BETTER, PolicyGroup, group_content

    if world_size() > 1:
        raise BadInputError("the trainings of a group are of one process each", field="--seeds, --sweep")
    if not first.evaluate:
        raise BadInputError("policies are compared on held-out prompts: --evaluate N", field="--seeds, --sweep")
    trainer = PolicyTrainer(workspace, first)
    held_out = trainer.held_out  # the same for all, also where a source draws them by seed
    chosen_on, *final_sets = held_out
    final = {item.prompt for name in final_sets[:1] for item in held_out[name]}
    if shared := final & {item.prompt for item in held_out[chosen_on]}:
        text = f"{final_sets[0]} has {counted(len(shared), 'prompt')} of {chosen_on}, by which settings are chosen"
        raise BadInputError(text, field="--eval-prompts")
    common: dict[str, Any] = {
        "best_by": trainer.plan.best_by,
        "group": first.name,
        "data_content": group_content(workspace, trainer.plan, trainer.prompts, held_out),
    }

    def grouped(chosen: Mapping[str, Any], seed: int, name: str) -> "Plan":
        plan = planned(chosen)
        return replace(plan, recipe=replace(plan.recipe, seed=seed), name=name, **common)

    swept = {"recipe", "policy", *RECIPE_OPTIONS} - {"seed"}
    fixed = [str(parameter.name) for parameter in context.command.params if parameter.name not in swept]
    members = members_of(context, options, first.name, first.recipe.seed, grouped, fixed=fixed, keys=True)
    training = PolicyGroup(workspace, members, lambda plan, resume: train(plan, resume, held_out))
    runs = run_group(workspace, training, members)
    best_by, lower = first.best_by.removeprefix("-"), first.best_by.startswith("-")
    prefer = best_by.removeprefix(f"eval_{chosen_on}_").removeprefix("eval_")
    result = compare_group(
        runs,
        prefer=prefer,
        lower=(*LOWER_IS_BETTER, *([prefer] if lower else [])),
        neither=NEITHER_IS_BETTER,
        data=chosen_on,
        final_data=next(iter(final_sets), None),
        other_data="a second --eval-prompts gives others",
    )
    show_group(result, as_json=as_json)


@contextmanager
def _resume_hint(every: int) -> Iterator[Callable[[Path], None]]:
    """Around a training: prints the run's name when it starts, and how to resume it when it is interrupted.

    Yields the callback that receives the run's folder. `every`: steps between checkpoints.
    """
    from assay_policy_training.training.checkpoint import checkpoints

    folders: list[Path] = []

    def started(folder: Path) -> None:
        folders.append(folder)
        typer.echo(f"run {folder.name} ({folder})", err=True)

    try:
        yield started
    except (Exception, KeyboardInterrupt) as error:
        if folders and checkpoints(folders[0]):
            typer.echo(f"resume with: assay rl --resume {folders[0].name}", err=True)
        elif folders and isinstance(error, KeyboardInterrupt):
            setting = f"--set checkpoint_every={every}" if every else "--set checkpoint_every=0: none is made"
            typer.echo(f"stopped before the first checkpoint ({setting})", err=True)
        raise


def _payload(trained: "TrainedPolicy") -> dict[str, Any]:
    return {
        "run": trained.run_id,
        "folder": str(trained.folder),
        "policy": str(trained.policy),
        "artifacts": {"policy": trained.policy_artifact, "rollouts": trained.rollouts_artifact},
        **trained.metrics,
    }


def _text(trained: "TrainedPolicy") -> str:
    from assay.models.contamination import KEY, uses_from

    lines = [f"policy {trained.policy}", f"run    {trained.run_id} ({trained.folder})"]
    lines += [f"contamination, carried by the policy: {use}" for use in uses_from(trained.metrics[KEY])]
    if trained.metrics["stopped_early"]:
        lines.append(f"stopped early: {trained.metrics['stopped_early']}")
    if (saved := trained.metrics["saved_step"]) != trained.metrics["steps"]:
        lines.append(f"the saved policy is that of step {saved} of {trained.metrics['steps']}")
    rows = [("first step", trained.metrics["first_step"]), ("last step", trained.metrics["last_step"])]
    for label, row in rows:
        if row:
            lines.append(f"{label:<11}" + ", ".join(_step_facts(row)))
    if trained.metrics["rewards_missing"]:
        lines.append(_missing_line(trained))
    for name, (before, after) in trained.by_set.items():
        if len(trained.by_set) > 1:
            lines.append(f"on {name}")
        lines += [_evaluation_line("before", before), _evaluation_line("after", after), _change_line(before, after)]
    return "\n".join(lines)


def _missing_line(trained: "TrainedPolicy") -> str:
    """How many rollouts have no reward, and why the first of them has none."""
    from assay.data.json_lines import Lines, parse_object
    from assay_policy_training.training.loop import ROLLOUTS_FILE

    lines = (line for _, line in Lines(trained.folder / ROLLOUTS_FILE) if b'"failures": [{' in line)
    first = parse_object(next(lines, b"{}"))
    reasons = [f"; the first, of step {first['step']}: {f['model']}: {f['message']}" for f in first.get("failures", ())]
    share = f"{trained.metrics['rewards_missing']} of {trained.metrics['rollouts']} rollouts"
    return f"{'no reward':<11}{share}, not trained on{''.join(reasons[:1])}"


def _evaluation_line(label: str, evaluation: "PolicyEvaluation") -> str:
    from assay.statistics.intervals import interval_text

    reward = "none" if evaluation.reward_mean is None else f"{evaluation.reward_mean:.3f}"
    passed = evaluation.verifier
    facts = [f"reward {reward}", f"length {evaluation.length_mean:.1f}"]
    if passed is not None:
        facts.append(f"pass rate {passed.share:.3f} [{interval_text(passed.interval, '.3f')}] of {passed.total}")
    if evaluation.kl_k3 is not None:
        facts.append(f"KL {evaluation.kl_k3:.4f} a token")
    return f"{label:<11}" + ", ".join(facts)


def _change_line(before: "PolicyEvaluation", after: "PolicyEvaluation") -> str:
    from assay.statistics.intervals import interval_text
    from assay_policy_training.training.evaluation import PolicyChange

    change = PolicyChange.between(before, after)
    changes = [("reward", change.reward), ("pass rate", change.pass_rate)]
    facts = [f"{name} {c.value:+.3f} [{interval_text(c.interval, '+.3f')}]" for name, c in changes if c is not None]
    return f"{'change':<11}" + ", ".join([*facts, "each prompt with itself"])


def _step_facts(row: dict[str, Any]) -> list[str]:
    names = {
        "reward_mean": "reward",
        "verifier_pass_rate": "pass rate",
        "kl_k3": "KL a token",
        "length_mean": "length",
        "rewards_missing": "missing",
        "seconds": "seconds",
    }
    return [f"{text} {row[key]:.4g}" for key, text in names.items() if key in row]
