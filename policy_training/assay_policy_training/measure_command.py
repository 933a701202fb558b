"""`assay measure`: figures of policies beside their mean reward. Heavy imports happen inside the command."""

from typing import Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_policy_training.core.response_options import ResponseOptions
from assay_policy_training.measures.kind import MEASURES


def register(app: typer.Typer) -> None:
    app.command("measure")(measure)


@settings_options(ResponseOptions)
def measure(
    name: Annotated[str, typer.Argument(help=MEASURES.help(), show_default=False)],
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]SOURCE...",
            help="A model to sample, a run, or a rollouts.jsonl or evaluation.json; several of one label by commas. "
            "The first is the base.",
            show_default=False,
        ),
    ],
    options: ResponseOptions,
    prompts: Annotated[
        str, typer.Option(metavar="SOURCE", help="What models are sampled on, as in assay rl.")
    ] = "constrained:16",
    samples: Annotated[int, typer.Option(min=1, help="Responses a prompt.")] = 16,
    reward: Annotated[
        list[str] | None, typer.Option(help="As in assay rl; repeatable. Each is a part of a sample's record.")
    ] = None,
    pass_above: Annotated[
        float | None,
        typer.Option(help="Without constraints a response passes where its reward is above this.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the measure, its value as JSON; repeatable."),
    ] = None,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure policies: what they solve in k samples, what training lost, how seeds differ.

    Responses are generated once for equal weights, prompts and settings, and stored in the workspace; an interrupted
    generation resumes. The table is in measure.json of the run, the judged samples beside it.

    Example: `assay measure pass_at_k base=smollm2 trained=my-policy --prompts constrained:32 --samples 16`
    """
    import json
    from contextlib import ExitStack

    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import start_run
    from assay.system.atomic_files import replacing
    from assay.workspace import Workspace
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.measures.inputs import Inputs, parse_policies
    from assay_policy_training.measures.samples import Generation
    from assay_policy_training.plugins.prompts.source import load_prompts
    from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
    from assay_policy_training.rollouts.reward_uri import recorded_reward

    chosen = MEASURES.create(name, values_of_settings(settings or ()), field="NAME")
    target, sources = Workspace.find(workspace), parse_policies(policies)
    rewards = [recorded_reward(reference, None, workspace=target) for reference in reward or ()]
    config: dict[str, Any] = {"measure": name, "settings": settings or [], "policies": policies, "prompts": prompts}
    config |= {"samples": samples, "rewards": rewards, "pass_above": pass_above, **options.record()}

    def items() -> list[PromptItem]:
        return load_prompts(prompts, seed=options.seed, split="heldout", workspace=target)[: options.limit]

    with ExitStack() as stack:
        opened = open_rewards(stack, rewards, keys_of(rewards, None), wait=None, deadline=600.0, device=device)
        run = stack.enter_context(start_run(target, "measure", config))
        advance = stack.enter_context(progress_bar("sampling", None, unit="prompts"))
        generation = Generation(samples, options.seed, options.sampling)
        inputs = Inputs(target, run, items, opened, generation, options.chat, device, pass_above, advance)
        result = chosen.measure(inputs.read(sources, chosen.reads))
        payload = {"run": run.id, "measure": name, "table": result.table, **result.facts}
        run.metrics.update(payload)
        with replacing(run.folder / "measure.json") as temporary:
            temporary.write_text(json.dumps(payload, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    emit(payload, table_text(result.table, result.facts), as_json=as_json)


def values_of_settings(texts: Any) -> dict[str, Any]:
    """Of `KEY=VALUE` texts, values as JSON or as they are. Raises BadInputError for another text."""
    import json

    from assay.errors import BadInputError

    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInputError(f"a setting is given as KEY=VALUE, not {text!r}", field="--set")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value  # a text without its quotes
    return values


def table_text(table: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    """The table with aligned columns, then the facts that are lists of rows, a line each."""
    lines = []
    for rows in (table, *(value for value in facts.values() if isinstance(value, list) and value)):
        if not isinstance(rows[0], dict):
            continue
        cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
    lines += [f"{key}: {value}" for key, value in facts.items() if isinstance(value, int | float | str)]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value).replace("\n", " ")[:60]
