"""Judges described in a YAML file, for the loop and for `assay judge run --judges FILE`.

    judges:
      - {kind: openai, base_url: https://api.openai.com/v1, model: gpt-5, api_key_env: OPENAI_API_KEY, both_orders:
      true} - {kind: local, model: smollm2} - {kind: reward_model, model: my-rm} - {kind: verifier} - {kind: recorded,
      annotators: "UKPLab%", votes: 3} - {kind: simulated, accuracy: 0.8, truth: gold}

Leaves out: the judges. Prompt folders and files of recorded votes are relative to the YAML file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from assay.domain import Answer
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
from assay_pipelines.judging.recorded import RecordedJudge
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.judging.verifier import ConstraintJudge
from assay_pipelines.llm.configuration import EndpointConfig
from assay_serving.model_config import ModelConfig

_ENDPOINT = tuple(field.name for field in fields(EndpointConfig))
_JUDGE = tuple(field.name for field in fields(LlmJudgeConfig) if field.name != "endpoint")
_LOCAL = ("model", "device", "dtype", "max_tokens", "temperature", *_JUDGE)
_RECORDED = ("kind_of_voter", "annotators", "exclude", "file", "name", "votes", "limit", "seed", "on_split")
_SIMULATED = ("truth", "name", *(field.name for field in fields(SimulatedConfig)))


def load_judges(path: Path, workspace: Workspace) -> list[Judge]:
    """The file's judges in its order. Raises BadInputError naming the judge and the field that is wrong."""
    try:
        payload = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInputError("no such file", file=path) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
    entries = payload.get("judges") if isinstance(payload, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BadInputError("must be a list of at least one judge", file=path, field="judges")
    judges = []
    for number, entry in enumerate(entries, start=1):
        try:
            judges.append(judge_of(entry, workspace, path.parent))
        except BadInputError as error:
            raise BadInputError(f"judge {number}: {error}", file=path) from error
    return judges


def judge_of(entry: Any, workspace: Workspace, folder: Path = Path()) -> Judge:
    """One judge from its description."""
    if not isinstance(entry, dict):
        raise BadInputError("must be a mapping with a kind")
    settings = {str(name): value for name, value in entry.items()}
    kind = settings.pop("kind", None)
    if kind not in _MAKERS:
        raise BadInputError(f"{kind!r} is not one of {', '.join(_MAKERS)}", field="kind")
    known, make = _MAKERS[kind]
    if unknown := [name for name in settings if name not in known]:
        raise BadInputError(f"is not a setting of a judge of kind {kind}; known: {', '.join(known)}", field=unknown[0])
    for name in ("prompts", "file"):
        if isinstance(settings.get(name), str):
            settings[name] = folder / Path(settings[name]).expanduser()
    try:
        return make(settings, workspace)
    except (TypeError, ValueError, KeyError) as error:  # a word for a number, a missing setting
        raise BadInputError(_plain(error)) from error


def _openai(settings: dict[str, Any], workspace: Workspace) -> Judge:
    if int(settings.get("samples", 1)) > 1:
        settings.setdefault("temperature", SAMPLING)
    endpoint = EndpointConfig(**{name: settings.pop(name) for name in _ENDPOINT if name in settings})
    return LlmJudge(LlmJudgeConfig(endpoint, **settings), workspace)


def _local(settings: dict[str, Any], workspace: Workspace) -> Judge:
    from assay_pipelines.judging.local import LocalJudge

    if int(settings.get("samples", 1)) > 1:
        settings.setdefault("temperature", SAMPLING)
    return LocalJudge(settings.pop("model"), workspace, **settings)


def _reward_model(settings: dict[str, Any], workspace: Workspace) -> Judge:
    from assay.runs.record import locate_model
    from assay_pipelines.judging.generative import GenerativeJudge
    from assay_pipelines.judging.reward_model import load_reward_model
    from assay_serving.model_loader import open_judge
    from assay_serving.model_reference import known_spec

    source, device = locate_model(workspace, settings["model"])[0], settings.get("device", "auto")
    spec = known_spec(source)
    if spec is not None and spec.judging is not None and spec.judging.format == "pairwise":
        called = settings["model"] if settings["model"] != source else None
        return GenerativeJudge(open_judge(ModelConfig(source, served_as=called, device=device)))
    return load_reward_model(source, device=device)


def _verifier(settings: dict[str, Any], workspace: Workspace) -> Judge:
    return ConstraintJudge(workspace)


def _recorded(settings: dict[str, Any], workspace: Workspace) -> Judge:
    if (path := settings.pop("file", None)) is not None:
        return RecordedJudge.from_file(path, **settings)
    settings["kind"] = settings.pop("kind_of_voter", "human")
    return RecordedJudge.from_store(workspace, **settings)


def _simulated(settings: dict[str, Any], workspace: Workspace) -> Judge:
    truth, name = settings.pop("truth", "gold"), settings.pop("name", "simulated")
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


SAMPLING = 0.7  #: temperature where several samples are asked for and none is named

_MAKERS: Mapping[str, tuple[tuple[str, ...], Callable[[dict[str, Any], Workspace], Judge]]] = {
    "openai": ((*_ENDPOINT, *_JUDGE), _openai),
    "local": (_LOCAL, _local),
    "reward_model": (("model", "device"), _reward_model),
    "verifier": ((), _verifier),
    "recorded": (_RECORDED, _recorded),
    "simulated": (_SIMULATED, _simulated),
}


def _plain(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    text = str(error)
    return text.split("() ", 1)[1] if "() " in text else text
