"""`assay decode`: responses chosen by a reward, of a policy that stays as it is. Heavy imports are in the command."""

from typing import Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_policy_training.core.response_options import ResponseOptions
from assay_policy_training.decoding.kind import DECODERS
from assay_policy_training.measure_command import table_text, values_of_settings


def register(app: typer.Typer) -> None:
    app.command("decode")(decode)


@settings_options(ResponseOptions)
def decode(
    name: Annotated[str, typer.Argument(metavar="DECODER", help=DECODERS.help(), show_default=False)],
    policy: Annotated[str, typer.Argument(help="A model: name, folder or hub id.", show_default=False)],
    reward: Annotated[list[str], typer.Option(help="As in assay rl; repeatable, the parts are added.")],
    prompts: Annotated[str, typer.Option(metavar="SOURCE", help="As in assay rl; generated: the held-out split.")],
    options: ResponseOptions,
    samples: Annotated[int, typer.Option(min=1, help="Responses a prompt.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the decoder, its value as JSON; repeatable."),
    ] = None,
    value_prompts: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="What a value model is trained on. Default: --prompts, of generated ones the training split.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write responses chosen by a reward: best-of-n, reward-guided beam search, Value Augmented Sampling.

    The policy is not changed. Equal weights, prompts, rewards and settings are decoded once: an interrupted command
    resumes, and responses whose reward failed are decoded again; while there are any, the exit code is 2.
    responses.jsonl and decoding.json (reward, KL from the policy, length, coverage) are in the run's folder.

    Example: `assay decode best_of_n smollm2 --reward verifier --prompts constrained:32 --set n=8`
    """
    import json
    from contextlib import ExitStack

    from assay.errors import BadInputError
    from assay.models.parallelism.distributed import local_device
    from assay.runs.json_log import JsonLog
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import locate_model, start_run
    from assay.system.atomic_files import replacing
    from assay.workspace import Workspace
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.decoding.kind import DecodingInputs
    from assay_policy_training.decoding.run import best_of_m, decode, reward_key, summary
    from assay_policy_training.plugins.prompts.source import load_prompts
    from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
    from assay_policy_training.rollouts.prompt_length import select_prompts
    from assay_policy_training.rollouts.reward_uri import recorded_reward

    decoder = DECODERS.create(name, values_of_settings(settings or ()))
    sampling, chat, seed = options.sampling, options.chat, options.seed
    target = Workspace.find(workspace)
    reward = [recorded_reward(reference, None, workspace=target) for reference in reward]
    config: dict[str, Any] = {"decoder": name, "settings": settings or [], "policy": policy, "prompts": prompts}
    config |= {"samples": samples, "rewards": reward, "value_prompts": value_prompts, **options.record()}
    listed = load_prompts(prompts, seed=seed, split="heldout", workspace=target)[: options.limit]
    with ExitStack() as stack:
        opened = open_rewards(stack, reward, keys_of(reward, None), wait=None, deadline=600.0, device=device)
        location, artifact = locate_model(target, policy, kinds=("policy",))
        limit = sampling.max_prompt_tokens
        model = Policy(location, device=local_device(device), max_prompt_tokens=limit, chat=chat)
        selection = select_prompts(listed, model.renderer, sampling)
        run = stack.enter_context(start_run(target, "decode", config))
        if artifact is not None:
            run.link("input", "artifact", artifact)
        folder = target.root / "decoding"
        folder.mkdir(exist_ok=True)

        def training_items() -> list[Any]:
            items = load_prompts(value_prompts or prompts, seed=seed, split="train", workspace=target)[: options.limit]
            return select_prompts(items, model.renderer, sampling).items

        inputs = DecodingInputs(model, sampling, opened, seed, training_items, reward_key(reward, opened), folder)
        total = len(selection.items) * samples
        advance = stack.enter_context(progress_bar("decoding", total, unit="responses"))
        rows = decode(decoder, selection.items, inputs, samples=samples, on_rows=advance)
        JsonLog(run.folder / "responses.jsonl").replace(rows)
        payload: dict[str, Any] = {"run": run.id, "decoder": name, "left_out": len(selection.too_long)}
        payload |= {**summary(rows), "best_of_m": best_of_m(rows), **inputs.facts}
        run.metrics.update(payload)
        with replacing(run.folder / "decoding.json") as temporary:
            temporary.write_text(json.dumps(payload, indent=2) + "\n", encoding="utf-8")
    figures = [{"figure": key, **value} for key, value in payload.items() if isinstance(value, dict) and "low" in value]
    values = {f"values_{key}": value for key, value in payload.get("values", {}).items()}
    emit(payload, table_text(figures, payload | values), as_json=as_json)
    if missing := payload["rewards_missing"]:
        failures = next(row["failures"] for row in rows if row["reward"] is None)
        reason = "; ".join(f"{failure['model']}: {failure['message']}" for failure in failures) or "no reason given"
        typer.echo(f"{missing} of {payload['responses']} responses have no reward, the first: {reason}", err=True)
        raise typer.Exit(BadInputError.exit_code)
