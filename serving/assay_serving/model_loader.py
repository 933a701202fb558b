"""From what a person names to something that scores: a URL, a folder, a hub id, an artifact of the workspace.

Leaves out: scoring. Commands of several parts share it, so that `--reward` and `--model` mean the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from assay.models.spec import Judging, RewardModelSpec
    from assay.workspace import Workspace
    from assay_serving.generative.pairwise import PairwiseJudge
    from assay_serving.scorer import Scorer


_NAMES_SHOWN = 20
#: Seconds for one request to a server that is part of a composed reward: it must fail before the server that waits for
#: all parts gives its own engine up (`ServerSettings.engine_timeout_s`).
PART_DEADLINE_S = 90.0


def is_url(reference: str) -> bool:
    return reference.startswith(("http://", "https://"))


def open_scorer(
    reference: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    ca: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    token_budget: int | None = None,
    max_length: int | None = None,
    kind: str | None = None,
    question: str | None = None,
    allow_failed_parity: bool = False,
    correct: str | None = None,
    workspace: Path | None = None,
    wait: float = 10.0,
    deadline: float = 600.0,
) -> Scorer:
    """A scorer for a URL of a reward server (`model`, `api_key`, `ca`: see `RewardClient`), or for a model to load.

    `kind`, `question`, `allow_failed_parity`, `correct`: see `load_engine`. `wait`: seconds to give a server that is
    still loading; then BackendError. `deadline`: seconds for one request to a server, with all its tries.
    """
    if is_url(reference):
        from assay_serving.client import RemoteScorer, RewardClient

        if correct is not None:
            raise BadInputError(
                f"{reference} corrects its own scores: start it with assay serve --correct", field="correct"
            )
        client = RewardClient(reference, model=model, api_key=api_key, deadline=deadline, ca=ca)
        client.wait_until_ready(wait)
        return RemoteScorer(client)
    folder = located(reference, workspace)
    return load_engine(
        folder,
        served_as=model or (reference if folder != reference else None),
        device=device,
        dtype=dtype,
        token_budget=token_budget,
        max_length=max_length,
        kind=kind,
        question=question,
        allow_failed_parity=allow_failed_parity,
        correct=correct,
        workspace=workspace,
    )


def load_engine(
    name: str,
    *,
    served_as: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    token_budget: int | None = None,
    max_length: int | None = None,
    kind: str | None = None,
    question: str | None = None,
    allow_failed_parity: bool = False,
    correct: str | None = None,
    workspace: Path | None = None,
    engine: str = "transformers",
    engine_options: Mapping[str, Any] | None = None,
) -> Scorer:
    """The engine for the kind of reward model that `name` is: a folder, a hub id, the file or folder of an ensemble or
    of a composed reward.

    `kind`: of a model from elsewhere, which brings no spec of ours; scalar unless it is given. `question`: the wording
    that such a principle model was trained with. `allow_failed_parity`: load it though its spec says that it does not
    give the scores it was trained to. `correct`: name of a length correction of its spec to take off every reward.
    `workspace`: where the parts of a composed reward may be artifacts of; None finds it as every command does.
    `engine`: what runs the model: transformers, vllm, vllm-http or sglang-http (docs/serving/engines.md), and what is
    said to it.
    Raises BadInputError for an unknown kind or correction, and what the engine raises for a model of another kind.
    """
    if correct is not None:
        from assay_serving.engines.length_corrected import with_correction

        plain = load_engine(
            name,
            served_as=served_as,
            device=device,
            dtype=dtype,
            token_budget=token_budget,
            max_length=max_length,
            kind=kind,
            question=question,
            allow_failed_parity=allow_failed_parity,
            workspace=workspace,
            engine=engine,
            engine_options=engine_options,
        )
        return with_correction(plain, known_spec(name), correct)
    if engine != "transformers":
        return _open_elsewhere(
            name,
            kind or kind_of(name),
            engine,
            engine_options or {},
            token_budget=token_budget,
            question=question,
            served_as=served_as,
            device=device,
            dtype=dtype,
            max_length=max_length,
            allow_failed_parity=allow_failed_parity,
        )
    if engine_options:
        raise BadInputError("the transformers engine has no options of its own", field="engine_options")
    if is_composed(name):
        from assay_serving.composition.part_loader import Opener

        opener = Opener(
            open_model=lambda model, of_kind, asked: load_engine(
                model,
                device=device,
                dtype=dtype,
                token_budget=token_budget,
                max_length=max_length,
                kind=of_kind,
                question=asked,
                allow_failed_parity=allow_failed_parity,
            ),
            # No key unless the file names one: $ASSAY_API_KEY is the one that opens this process's own server.
            open_server=lambda url, model, key: open_scorer(
                url, model=model, api_key=key or "", deadline=PART_DEADLINE_S
            ),
            locate=lambda model: located(model, workspace),
        )
        return opener.load(Path(name).expanduser(), name=served_as)
    if is_ensemble(name):
        from assay_serving.engines.ensemble import EnsembleScorer

        def open_member(member: str) -> Scorer:
            return load_engine(
                member,
                device=device,
                dtype=dtype,
                token_budget=token_budget,
                max_length=max_length,
                allow_failed_parity=allow_failed_parity,
            )

        return EnsembleScorer.load(Path(name).expanduser(), open_member, name=served_as)
    from assay_serving.engines.transformers import TransformersScorer

    options: dict[str, Any] = {
        "served_as": served_as,
        "device": device,
        "dtype": dtype,
        "token_budget": token_budget,
        "max_length": max_length,
        "allow_failed_parity": allow_failed_parity,
    }
    chosen = kind or kind_of(name)
    _check_question(name, chosen, question)
    if chosen == "principle":
        from assay_serving.engines.principle import PrincipleScorer

        return PrincipleScorer.load(name, question=question, **options)
    if chosen == "scalar":
        spec = known_spec(name)
        if spec is not None and spec.stepwise is not None:
            from assay_serving.engines.process_reward import StepScorer

            return StepScorer.load(name, **options)
        if spec is not None and spec.ratings is not None:
            from assay_serving.engines.ratings import RatingsScorer

            return RatingsScorer.load(name, **options)
        return TransformersScorer.load(name, **options)
    if chosen == "generative":
        from assay_serving.generative.engine import GenerativeScorer

        return GenerativeScorer.load(name, judging=_usual_judging(name), **options)
    raise BadInputError(f"{chosen!r} is not one of scalar, principle, generative", field="kind")


def _open_elsewhere(
    name: str, kind: str, engine: str, engine_options: Mapping[str, Any], *, token_budget: int | None, **options: Any
) -> Scorer:
    """By an engine other than transformers."""
    from assay_serving.vllm.engine_loader import Opening

    if kind in ("ensemble", "composed"):
        raise BadInputError(f"{name} is {kind}: serve its models with that engine, each under its name", field="engine")
    if token_budget is not None:
        raise BadInputError("is for the transformers engine: this one plans its own passes", field="token_budget")
    _check_question(name, kind, options["question"])
    opening = Opening(name, engine, engine_options, **options)
    return opening.open(kind, judging=_usual_judging(name) if kind == "generative" else None)


def _check_question(name: str, kind: str, question: str | None) -> None:
    if question is not None and kind != "principle":
        raise BadInputError(f"a question is for principle models, and {name} is {kind}", field="question")


def _usual_judging(name: str) -> Judging | None:
    """How a plain language model is asked for a score; None for a model that brings its own settings."""
    from assay.models.spec import Judging
    from assay_serving.generative.templates import POINTWISE

    return Judging(POINTWISE.name, POINTWISE.hash) if known_spec(name) is None else None


def open_judge(
    reference: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    judging: Judging | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
    allow_failed_parity: bool = False,
    workspace: Path | None = None,
) -> PairwiseJudge:
    """A pairwise judge: a generative model to load here, or the `model` of an OpenAI-compatible endpoint (URL).

    `judging`: how to ask, instead of the model's own settings; an endpoint and a plain language model are asked with
    the pairwise question and the defaults where it is not given. `allow_failed_parity`: see `load_engine`.
    """
    from assay.models.spec import Judging
    from assay_serving.generative.pairwise import PairwiseJudge
    from assay_serving.generative.templates import PAIRWISE

    usual = Judging(PAIRWISE.name, PAIRWISE.hash)
    if is_url(reference):
        from assay_serving.generative.remote import RemoteWriter, endpoint_of

        writer, spec = RemoteWriter.open(endpoint_of(reference, model, api_key=api_key), judging or usual)
        return PairwiseJudge(writer, spec, seed=seed)
    source = located(reference, workspace)
    chosen = judging or (usual if known_spec(source) is None else None)
    served_as = model or (reference if source != reference else None)
    return PairwiseJudge.load(
        source,
        judging=chosen,
        seed=seed,
        served_as=served_as,
        device=device,
        dtype=dtype,
        allow_failed_parity=allow_failed_parity,
    )


def kind_of(name: str) -> str:
    """What its spec says; scalar for a model from elsewhere, "ensemble" or "composed" for the file or folder of one."""
    if is_composed(name):
        return "composed"
    if is_ensemble(name):
        return "ensemble"
    spec = known_spec(name)
    return spec.kind if spec is not None else "scalar"


def is_ensemble(name: str) -> bool:
    """Whether `name` is the description of an ensemble, or a folder that holds one."""
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return path.is_file() and not is_composed(name)
    return (path / "ensemble.yaml").is_file()


def is_composed(name: str) -> bool:
    """Whether `name` is a file that says `kind: composed`, or a folder that holds composed.yaml."""
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        return (path / "composed.yaml").is_file()
    # Not parsed: of a file that is not quite YAML the right reader must say so.
    saying = re.compile(rb"""^(\{\s*)?["']?kind["']?\s*:\s*["']?composed\b""", re.MULTILINE)
    return path.is_file() and saying.search(path.read_bytes()) is not None


def known_spec(name: str) -> RewardModelSpec | None:
    """The spec in the model's folder; None for a model from elsewhere, for an ensemble and for a composed reward."""
    if is_ensemble(name) or is_composed(name):
        return None
    from assay.models.loading import resolve_model
    from assay.models.spec import RewardModelSpec

    folder = Path(resolve_model(name))
    return RewardModelSpec.read(folder) if folder.is_dir() else None


def located(reference: str, workspace: Path | None = None) -> str:
    """What to load for what a person calls a model: see `assay.runs.record.locate_model`.

    Raises NotFoundError with the workspace's models for a bare name that is none of them and nothing else.
    """
    from assay.models import embedded, tiny
    from assay.runs.record import MODEL_KINDS, locate_model

    opened_workspace = find_workspace(workspace)
    folder, artifact = locate_model(opened_workspace, reference)
    path_like = "/" in reference or reference.startswith((".", "~")) or Path(reference).exists()
    if opened_workspace is None or artifact is not None or path_like or reference in (embedded.NAME, tiny.NAME):
        return folder
    with opened_workspace.store.unit() as db:
        rows = db.execute(
            """SELECT name FROM artifacts WHERE list_contains($kinds, kind)
               GROUP BY name ORDER BY max(created_at) DESC""",
            {"kinds": list(MODEL_KINDS)},
        ).fetchall()
    if not rows:
        return folder
    names = [str(name) for (name,) in rows[:_NAMES_SHOWN]]
    more = f" and {len(rows) - len(names)} more" if len(rows) > len(names) else ""
    raise NotFoundError(f"no model {reference!r}; the workspace has {', '.join(names)}{more}")


def find_workspace(path: Path | None) -> Workspace | None:
    """The named workspace, else the one that every command finds, else None."""
    from assay.workspace import Workspace

    if path is not None:
        return Workspace.open(path)
    try:
        return Workspace.find()
    except NotFoundError:
        return None
