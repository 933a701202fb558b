"""`assay train generative-sft`, `generative-rl`, `critique-sft` and `cloud`: reward models that write."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.resume import absolute_file, refuse_changes, resume_hint
from assay.system.plurals import counted
from assay_rm_training.commands.evaluation_tables import print_rows
from assay_rm_training.commands.train.options import ForceOption, WaiveOption

if TYPE_CHECKING:
    from assay_rm_training.generative.rl_run import TrainedJudge
    from assay_rm_training.methods.method import Method


def generative_sft(
    form: Annotated[
        str, typer.Option("--format", help="pairwise (A or B), pointwise (Yes or No) or rating (1 to 10).")
    ] = "pairwise",
    one_order: Annotated[
        bool,
        typer.Option("--one-order", help="Use one order of a pair, chosen at random; default: both, in one batch."),
    ] = False,
    verdict_weight: Annotated[float, typer.Option(help="Weight of the verdict's token; every other has 1.")] = 1.0,
    content_free: Annotated[
        float, typer.Option(help="Rows added in which a content-free answer loses, as a share of the rows.")
    ] = 0.0,
    samples: Annotated[int, typer.Option(help="Votes per question when judging; above 1 set --temperature.")] = 1,
    temperature: Annotated[float, typer.Option(help="When the model is used; 0 = most likely token.")] = 0.0,
    max_new_tokens: Annotated[
        int, typer.Option(help="Longest answer, when the model is used; with tools, of a turn.")
    ] = 256,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="A tool that it may call: calculator, python, search?file=F, or one of yours. Repeatable."),
    ] = None,
    tool_rounds: Annotated[int, typer.Option(help="Turns in which it may call tools.")] = 4,
) -> "Method":
    """Fine-tune a language model to judge, on rationales and verdicts. The base for generative-rl.

    Rows: a snapshot with rationales in its judgments, or a file of {prompt, responses, verdict, rationale} or
    {prompt, chosen, rejected, rationale}. With --tool, recorded calls and results in them (tool_trace, of pairs
    tool_trace_chosen and tool_trace_rejected) are part of the answer; results get no gradient.

    Example: `assay train generative-sft --data reasons.jsonl.gz --base smollm2 --name judge --max-length 768`
    """
    from assay_rm_training.generative.sft import GenerativeSft

    of_tools = (samples, temperature, max_new_tokens, tuple(tool or ()), tool_rounds)
    return GenerativeSft(form, not one_order, verdict_weight, content_free, *of_tools)


def cloud(
    critique_weight: Annotated[float, typer.Option(help="Weight of the critiques' cross-entropy.")] = 1.25,
    samples: Annotated[int, typer.Option(help="Critiques a score is the mean of; above 1 set --temperature.")] = 1,
    temperature: Annotated[float, typer.Option(help="Of critiques; 0 = most likely token.")] = 0.0,
    max_new_tokens: Annotated[int, typer.Option(help="Longest critique.")] = 256,
) -> "Method":
    """Train a reward model that criticises a response and then scores it (CLoud), on pairs.

    The base, usually of train critique-sft, criticises both sides of every pair before training; reward and critiques
    are then learned together.

    Example: `assay train cloud --data gold --eval-data gold-holdout --base critic --name cloud --max-new-tokens 96`
    """
    from assay_rm_training.preference.critique import Cloud

    return Cloud(critique_weight, samples, temperature, max_new_tokens)


def critique_sft() -> "Method":
    """Fine-tune a language model on critiques of responses, as the base of train cloud.

    Rows: {prompt, response, critique}, or {prompt, chosen, rejected, rationale: "CHOSEN: ... || REJECTED: ..."}.

    Example: `assay train critique-sft --data critiques.jsonl --base smollm2 --name critic`
    """
    from assay_rm_training.preference.critique import CritiqueSft

    return CritiqueSft()


def generative_rl(
    context: typer.Context,
    data: Annotated[str | None, typer.Option(help="Snapshot of the workspace, or a file of judged rows.")] = None,
    base: Annotated[str, typer.Option(help="Model to start from, usually of train generative-sft.")] = "smollm2",
    eval_data: Annotated[str | None, typer.Option(help="Held-out rows, evaluated before and after.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new model. Default: BASE-rl.")] = None,
    force: ForceOption = False,
    form: Annotated[
        str | None, typer.Option("--format", help="pairwise, pointwise or rating. Default: the base's.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="judge, r1_reward, or a YAML file.")] = "judge",
    checker: Annotated[
        str | None,
        typer.Option(help="Second judge, of r1_reward: a model or an OpenAI-compatible address."),
    ] = None,
    checker_model: Annotated[str | None, typer.Option(help="The model of that address.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps in all. Default: the recipe's.")] = None,
    group_size: Annotated[int | None, typer.Option(help="Answers per question. Default: the recipe's.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Longest answer. Default: the recipe's.")] = None,
    lr: Annotated[float | None, typer.Option(help="Default: the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the recipe's.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, e.g. reward.weights.consistency=1."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Votes per question when judging.")] = 1,
    temperature: Annotated[float, typer.Option(help="When the model is used; 0 = most likely token.")] = 0.0,
    device: DeviceOption = "auto",
    waive_contamination: WaiveOption = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN_ID", help="Resume from this run's checkpoint.")] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a generative judge by GRPO, with the correctness of its verdict as reward. Needs no rationales.

    Both orders of a pair are two questions of one batch. An answer without a verdict has the least reward and is
    counted. With --resume only --steps, --name, --force and --waive-contamination may change.

    Example: `assay train generative-rl --data gold --base judge --eval-data gold-holdout --name judge-rl --steps 50`
    """
    from assay.errors import BadInputError
    from assay.runs.record import locate_model, require_unfinished
    from assay.workspace import Workspace
    from assay_policy_training.recipe.loading import refuse_contradictions
    from assay_policy_training.training.checkpoint import checkpoints
    from assay_rm_training.commands.train.options import waivers_of
    from assay_rm_training.generative.judged_rows import read_judged
    from assay_rm_training.generative.rl_run import JudgePlan, judge_recipe, train_judge_rl
    from assay_serving.model_reference import known_spec

    here = Workspace.find(workspace)
    waivers = waivers_of(waive_contamination or [])
    if resume is not None:
        plan = JudgePlan.read(here, resume)
        if steps is None or steps <= plan.recipe.steps:
            require_unfinished(here, resume)
        refuse_changes(context, _CHANGEABLE, _FLAGS)
        planned = plan.recipe if steps is None else replace(plan.recipe, steps=steps)
        plan = replace(plan, recipe=planned, name=name or plan.name, force=force, waivers={**plan.waivers, **waivers})
    else:
        if data is None:
            raise BadInputError("name the rows to train on: --data SNAPSHOT or --data FILE")
        options = {
            "--steps": ("steps", steps),
            "--seed": ("seed", seed),
            "--lr": ("optimisation.lr", lr),
            "--group-size": ("sampling.group_size", group_size),
            "--max-new-tokens": ("sampling.max_new_tokens", max_new_tokens),
        }
        by_option = {option: f"{key}={value}" for option, (key, value) in options.items() if value is not None}
        refuse_contradictions(overrides or (), by_option.items())
        chosen = judge_recipe(recipe, [*(overrides or ()), *by_option.values()])
        spec = known_spec(locate_model(here, base)[0])
        base_format = spec.judging.format if spec is not None and spec.judging is not None else "pairwise"
        plan = JudgePlan(
            chosen,
            base,
            absolute_file(data),
            absolute_file(eval_data) if eval_data else None,
            name or f"{Path(base).name}-rl",
            form or base_format,
            samples,
            temperature,
            device,
            force,
            waivers,
            checker,
            checker_model,
        )
    rows = read_judged(here, plan.data, plan.form)
    eval_rows = read_judged(here, plan.eval_data, plan.form) if plan.eval_data else None
    often = f"--set checkpoint_every={plan.recipe.checkpoint_every}"
    with resume_hint(here, "train generative-rl", is_saved=lambda run: bool(checkpoints(run)), option=often):
        trained = train_judge_rl(here, plan, rows, eval_rows, resume=resume)
    if as_json:
        payload = {"model": trained.path.name, "path": str(trained.path), "artifact_id": trained.artifact_id}
        emit(payload | {"run_id": trained.run_id, "parity": trained.spec.parity, **trained.metrics}, "", as_json=True)
        return
    _show_reinforced(trained)


#: Options that may differ when a run is resumed.
_CHANGEABLE = frozenset(("resume", "steps", "name", "force", "waive_contamination", "workspace", "as_json"))
_FLAGS = {"overrides": "--set", "form": "--format"}


def _show_reinforced(trained: "TrainedJudge") -> None:
    metrics = trained.metrics
    amount = f"{counted(metrics['rows'], 'row')}, {counted(metrics['steps'], 'step')}"
    typer.echo(f"{trained.path.name}: {amount}, in {metrics['autocast']} on {metrics['device']}")
    for label, row in (("first step", trained.metrics["first_step"]), ("last step", trained.metrics["last_step"])):
        if row:
            names = (
                "reward_verdict_mean",
                "parse_failures",
                "position_bias",
                "both_orders_right",
                "kl_k3",
                "length_mean",
            )
            facts = [f"{name.replace('_', ' ')} {row[name]:.4g}" for name in names if name in row]
            typer.echo(f"{label:<11}" + ", ".join(facts))
    for label, evaluation in (("before", trained.before), ("after", trained.after)):
        if evaluation is not None:
            print_rows(f"{label} training", evaluation.rows())
    parity = trained.metrics["parity_check"]
    typer.echo(
        f"saved and reloaded: verdicts equal within {parity['largest_difference']:.1e} "
        f"({counted(parity['responses'], 'answer')})"
    )
    for warning in trained.metrics["warnings"]:
        typer.echo(f"WARNING: {warning}")
    for state in trained.contamination:
        typer.echo(f"contamination: {state}")
    typer.echo(f"model {trained.path} ({trained.artifact_id}), run {trained.run_id}")
