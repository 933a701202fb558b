"""Judges described in a YAML file, for the loop and for `assay judge run --judges FILE`.

    judges:
      - {kind: openai, base_url: "https://api.openai.com/v1", model: gpt-5, api_key_env: OPENAI_API_KEY}
      - {kind: openai, base_url: "http://gpu:8000/v1", model: RM-R1, profile: rm-r1, both_orders: true}
      - {kind: local, model: smollm2, both_orders: true}
      - {kind: reward_model, model: my-rm}
      - {kind: verifier}
      - {kind: recorded, annotators: "UKPLab%", votes: 3}
      - {kind: simulated, accuracy: 0.8, truth: gold}
      - {kind: "my_judges.py:Shorter", margin: 10}

Leaves out: the judges. Prompt folders and files of recorded votes are relative to the YAML file.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from assay.domain import AnnotatorKind, Answer
from assay.errors import BadInputError
from assay.registry import settings_of
from assay.workspace import Workspace
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.kind import JUDGES
from assay_pipelines.judging.merging import OnSplit
from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
from assay_pipelines.judging.recorded import RecordedJudge
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.llm.configuration import EndpointConfig
from assay_serving.generative.kind import JUDGE_PROFILES
from assay_serving.generative.templates import format_named
from assay_serving.model_config import ModelConfig

SAMPLING = 0.7  #: temperature where several samples are asked for and none is named
F = TypeVar("F", bound=Callable[..., Judge])


def load_judges(path: Path, workspace: Workspace) -> list[Judge]:
    """The file's judges in its order. Raises BadInputError naming the judge and the field that is wrong."""
    judges = []
    for number, entry in enumerate(judge_entries(path), start=1):
        try:
            judges.append(judge_of(entry, workspace, path.parent))
        except BadInputError as error:
            raise BadInputError(f"judge {number}: {error}", file=path) from error
    return judges


def judge_entries(path: Path) -> list[Any]:
    """The descriptions of a file's judges, unchecked. Raises BadInputError for a file without any."""
    try:
        payload = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInputError("no such file", file=path) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
    entries = payload.get("judges") if isinstance(payload, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BadInputError("must be a list of at least one judge", file=path, field="judges")
    return entries


def judge_of(entry: Any, workspace: Workspace, folder: Path = Path()) -> Judge:
    """One judge from its description: `kind`, a name of `JUDGES`, and its settings. Raises BadInputError."""
    if not isinstance(entry, dict):
        raise BadInputError("must be a mapping with a kind")
    settings = {str(name): value for name, value in entry.items()}
    kind = settings.pop("kind", None)
    factory = JUDGES.find(kind, folder=folder, field="kind")
    if reserved := [name for name in ("workspace", "folder") if name in settings]:
        raise BadInputError("is no setting of a judge", field=reserved[0])
    for name in ("prompts", "file"):
        if isinstance(settings.get(name), str):
            settings[name] = folder / Path(settings[name]).expanduser()
    if isinstance(profile := settings.get("profile"), str):  # a file of one's own lies beside the file of judges
        is_file = profile.endswith((".yaml", ".yml"))
        settings["profile"] = str((folder / Path(profile).expanduser()).resolve()) if is_file else profile
        settings["profile"] = JUDGE_PROFILES.absolute(settings["profile"], folder)
    parameters = {setting.name for setting in settings_of(factory)}
    settings |= {name: value for name, value in (("workspace", workspace), ("folder", folder)) if name in parameters}
    judge: Judge = JUDGES.create(str(kind), settings, folder=folder, field="kind")
    return judge


def _takes(*configs: type, without: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Add the fields of dataclasses to a factory's signature, in place of its `**settings`."""

    def decorate(factory: F) -> F:
        explicit = [p for p in inspect.signature(factory).parameters.values() if p.kind is not p.VAR_KEYWORD]
        listed = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for config in configs
            for hints in (get_type_hints(config),)
            for field in fields(config)
            if field.name not in without
        ]
        factory.__signature__ = inspect.Signature([*explicit, *listed])  # type: ignore[attr-defined]
        return factory

    return decorate


@_takes(EndpointConfig, LlmJudgeConfig, without=("endpoint",))
def openai_judge(*, workspace: Workspace, **settings: Any) -> Judge:
    """A language model behind an OpenAI-compatible endpoint."""
    several = int(settings.get("samples", 1)) > 1
    if settings.get("profile") is not None:
        settings = {**as_trained(settings["profile"], several=several), **settings}
    elif several:
        settings.setdefault("temperature", SAMPLING)
    names = [field.name for field in fields(EndpointConfig)]
    endpoint = EndpointConfig(**{name: settings.pop(name) for name in names if name in settings})
    return LlmJudge(LlmJudgeConfig(endpoint, **settings), workspace)


@_takes(LlmJudgeConfig, without=("endpoint",))
def local_judge(
    *,
    workspace: Workspace,
    model: str,
    device: str = "auto",
    dtype: str = "auto",
    max_tokens: int | None = None,
    temperature: float | None = None,
    **settings: Any,
) -> Judge:
    """A local transformers model, or a policy of the workspace."""
    from assay_pipelines.judging.local import LocalJudge

    several = int(settings.get("samples", 1)) > 1
    generation: dict[str, Any] = {"max_tokens": 256, "temperature": SAMPLING if several else 0.0}
    if settings.get("profile") is not None:
        generation = as_trained(settings["profile"], several=several)
    options = {"max_tokens": max_tokens, "temperature": temperature}
    generation |= {name: value for name, value in options.items() if value is not None}
    return LocalJudge(model, workspace, device=device, dtype=dtype, **generation, **settings)


def as_trained(profile: str, *, several: bool) -> dict[str, Any]:
    """An endpoint's settings as the profile says: nothing but its prompt, and its generation settings."""
    judging = format_named(profile).judging
    if judging.tools:
        raise BadInputError("a judge of this kind calls no tools; kind reward_model does", field="profile")
    temperature = SAMPLING if several and judging.temperature == 0 else judging.temperature
    generation = {"temperature": temperature, "top_p": judging.top_p, "max_tokens": judging.max_new_tokens}
    return {**generation, "structured": "none", "repairs": 0}


def reward_model_judge(
    *,
    workspace: Workspace,
    model: str,
    device: str = "auto",
    profile: str | None = None,
    tools: tuple[str, ...] = (),
) -> Judge:
    """A reward model, or the URL of its server; a pairwise generative one compares the two responses itself. `profile`:
    judge profile of a language model that is loaded here. `tools`: see `assay_serving.tools.kind.granted`."""
    from assay.runs.record import locate_model
    from assay_pipelines.judging.generative import GenerativeJudge
    from assay_pipelines.judging.reward_model import load_reward_model
    from assay_serving.engines.published import pair_form
    from assay_serving.generative.pair_ranker import FORMAT
    from assay_serving.model_loader import open_judge
    from assay_serving.model_reference import is_url, known_spec

    source = locate_model(workspace, model)[0]
    spec = None if is_url(source) else known_spec(source)
    if is_url(source) and profile is not None:
        raise BadInputError(
            "its server has a profile (serve --judge-profile); kind openai asks an endpoint by one", field="profile"
        )
    form = profile or (spec.judging.format if spec is not None and spec.judging is not None else None)
    if form is None and pair_form(ModelConfig(source)) is not None:
        form = FORMAT
    if form is not None and format_named(form).responses == 2:
        served_as = model if model != source else None
        config = ModelConfig(source, served_as=served_as, device=device, judge_profile=profile, tools=tuple(tools))
        return GenerativeJudge(open_judge(config))
    return load_reward_model(source, device=device, workspace=workspace.root, profile=profile, tools=tuple(tools))


def recorded_judge(
    *,
    workspace: Workspace,
    kind_of_voter: AnnotatorKind = "human",
    annotators: str = "%",
    exclude: tuple[str, ...] = (),
    file: Path | None = None,
    name: str = "recorded",
    votes: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_split: OnSplit = "tie",
) -> Judge:
    """Votes that were cast before, in the store or in a file."""
    merging: dict[str, Any] = {"name": name, "votes": votes, "limit": limit, "seed": seed, "on_split": on_split}
    if file is not None:
        return RecordedJudge.from_file(file, **merging)
    return RecordedJudge.from_store(workspace, kind=kind_of_voter, annotators=annotators, exclude=exclude, **merging)


@_takes(SimulatedConfig)
def simulated_judge(*, workspace: Workspace, truth: str = "gold", name: str = "simulated", **settings: Any) -> Judge:
    """A judge of stated accuracy, tie rate and position bias."""
    return SimulatedJudge(known_labels(workspace, truth), SimulatedConfig(**settings), name)


def known_labels(workspace: Workspace, truth: str) -> dict[str, Answer]:
    """comparison id -> label, of the gold pool (`gold`) or as the sources say (`source`)."""
    queries = {
        "gold": "SELECT comparison_id, label FROM current_decisions WHERE pool = 'gold' AND label IS NOT NULL",
        "source": "SELECT comparison_id, label FROM source_labels WHERE label IS NOT NULL",
    }
    if truth not in queries:
        raise BadInputError(f"{truth!r} is not one of {', '.join(queries)}", field="truth")
    with workspace.store.unit() as db:
        return dict(db.execute(queries[truth]).fetchall())
