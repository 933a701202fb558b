"""`assay step-values`: Monte-Carlo values of the steps of responses. Heavy imports are in the command."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_policy_training.core.response_options import ResponseOptions


def register(app: typer.Typer) -> None:
    app.command("step-values")(step_values)


@settings_options(ResponseOptions)
def step_values(
    policy: Annotated[
        str, typer.Argument(help="Continues the prefixes: a name, folder or hub id.", show_default=False)
    ],
    options: ResponseOptions,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="As in assay rl; rows may hold `responses`: texts, or objects with `text` or `steps`.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--out", "-o", help="The rows with `step_values`, for --prompts of assay rl.", show_default=False),
    ],
    labels: Annotated[
        Path | None, typer.Option(help="Also rows of labelled steps, for assay train steps.", show_default=False)
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Continuations of each prefix.")] = 16,
    best_of: Annotated[int, typer.Option(min=1, help="The prover is best-of-K of the policy.")] = 1,
    separator: Annotated[str, typer.Option(help="Ends a step of a text; \\n is a line break.")] = "\\n\\n",
    responses: Annotated[int, typer.Option(min=1, help="Sampled for a prompt that holds none.")] = 4,
    reward: Annotated[
        list[str] | None,
        typer.Option(help="As in assay rl; repeatable, the parts are added. Default: verifier.", show_default=False),
    ] = None,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate how much each step of a response is worth: continue its prefixes and reward the continuations.

    The values are what the recipes direct_advantage and incorrect_data learn from, and with --labels what a process
    reward model learns from. Interrupted, the same command resumes. Responses of which a value is missing are left out;
    while there are any, the exit code is 2.

    Example: `assay step-values smollm2 --prompts sums.jsonl --samples 16 -o valued.jsonl --labels steps.jsonl`
    """
    import json
    from contextlib import ExitStack

    from assay.errors import BadInputError
    from assay.models.parallelism.distributed import local_device
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import locate_model, start_run
    from assay.system.atomic_files import replacing
    from assay.workspace import Workspace
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.decoding.run import reward_key
    from assay_policy_training.plugins.prompts.source import load_prompts
    from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
    from assay_policy_training.rollouts.prefix_values import PrefixEstimator, PrefixSettings
    from assay_policy_training.rollouts.prompt_length import select_prompts
    from assay_policy_training.rollouts.reward_uri import recorded_reward
    from assay_policy_training.rollouts.step_value_rows import label_rows, valued_rows

    settings = PrefixSettings(
        samples=samples,
        best_of=best_of,
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        separator=separator.replace("\\n", "\n"),
        seed=options.seed,
        stop=options.stop,
    )
    target = Workspace.find(workspace)
    rewards = [recorded_reward(reference, None, workspace=target) for reference in reward or ["verifier"]]
    config: dict[str, Any] = {"policy": policy, "prompts": prompts, "rewards": rewards, "samples": samples}
    config |= {"best_of": best_of, "separator": settings.separator, "responses": responses, **options.record()}
    listed = load_prompts(prompts, seed=options.seed, split="train", workspace=target)[: options.limit]
    with ExitStack() as stack:
        opened = open_rewards(stack, rewards, keys_of(rewards, None), wait=None, deadline=600.0, device=device)
        location, artifact = locate_model(target, policy, kinds=("policy",))
        sampling = options.sampling
        model = Policy(
            location, device=local_device(device), max_prompt_tokens=sampling.max_prompt_tokens, chat=options.chat
        )
        selection = select_prompts(listed, model.renderer, sampling)
        run = stack.enter_context(start_run(target, "step-values", config))
        if artifact is not None:
            run.link("input", "artifact", artifact)
        advance = stack.enter_context(progress_bar("step values", len(selection.items), unit="prompts"))
        estimator = PrefixEstimator(model, settings, opened)
        folder = target.root / "step-values"
        folder.mkdir(exist_ok=True)
        rows, failures = valued_rows(
            selection.items, estimator, reward_key(rewards, opened), folder, responses=responses, on_rows=advance
        )
        for path, lines in ((output, rows), (labels, label_rows(rows, settings.separator))):
            if path is not None:
                with replacing(path.expanduser()) as temporary:
                    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
                    temporary.write_text(text, encoding="utf-8")
        valued = [response for row in rows for response in row["responses"]]
        values = [v for response in valued for v in response["step_values"]]
        payload: dict[str, Any] = {
            "run": run.id,
            "prompts": len(rows),
            "responses": len(valued),
            "steps": sum(len(response["steps"]) for response in valued),
            "without_values": len(failures),
            "left_out": len(selection.too_long),
            "mean_value": sum(values) / len(values) if values else None,
            "mean_reward": sum(r["reward"] for r in valued) / len(valued) if valued else None,
            "generated_tokens": estimator.generated,
            "file": str(output),
        }
        run.metrics.update(payload)
    text = "\n".join(
        f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}" for name, value in payload.items()
    )
    emit(payload, text, as_json=as_json)
    if failures:
        typer.echo(f"{len(failures)} responses have no values, the first: {failures[0]}", err=True)
        raise typer.Exit(BadInputError.exit_code)
