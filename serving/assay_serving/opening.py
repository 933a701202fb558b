"""From what a person names to something that scores: a URL, a folder, a hub id, an artifact of the workspace.

Leaves out: scoring. Commands of several parts share it, so that `--reward` and `--model` mean the same everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from assay.workspace import Workspace
    from assay_serving.scorer import Scorer


def is_url(reference: str) -> bool:
    return reference.startswith(("http://", "https://"))


def open_scorer(
    reference: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    token_budget: int | None = None,
    max_length: int | None = None,
    kind: str | None = None,
    question: str | None = None,
    workspace: Path | None = None,
    wait: float = 10.0,
) -> Scorer:
    """A scorer for a URL of a reward server (`model` and `api_key` are its), or for a model to load here.

    `kind`, `question`: see `load_engine`. `wait`: seconds to give a server that is still loading; then BackendError.
    """
    if is_url(reference):
        from assay_serving.client import RemoteScorer, RewardClient

        client = RewardClient(reference, model=model, api_key=api_key)
        client.wait_until_ready(wait)
        return RemoteScorer(client)
    from assay.runs import locate_model

    folder = locate_model(find_workspace(workspace), reference)[0]
    return load_engine(
        folder,
        served_as=model or (reference if folder != reference else None),
        device=device,
        dtype=dtype,
        token_budget=token_budget,
        max_length=max_length,
        kind=kind,
        question=question,
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
) -> Scorer:
    """The engine for the kind of reward model that `name` (a folder, a hub id) is.

    `kind`: of a model from elsewhere, which brings no spec of ours; scalar unless it is given. `question`: the wording
    that such a principle model was trained with. Raises BadInputError for an unknown kind, and what the engine raises
    for a model of another kind.
    """
    from assay_serving.transformers_engine import TOKEN_BUDGET, TransformersScorer

    options: dict[str, Any] = {
        "served_as": served_as,
        "device": device,
        "dtype": dtype,
        "token_budget": token_budget or TOKEN_BUDGET,
        "max_length": max_length,
    }
    chosen = kind or kind_of(name)
    if question is not None and chosen != "principle":
        raise BadInputError(f"a question is for principle models, and {name} is {chosen}", field="question")
    if chosen == "principle":
        from assay_serving.principle_engine import PrincipleScorer

        return PrincipleScorer.load(name, question=question, **options)
    if chosen == "scalar":
        return TransformersScorer.load(name, **options)
    raise BadInputError(f"there is no engine here for {chosen!r} models; one of scalar, principle", field="kind")


def kind_of(name: str) -> str:
    """What its spec says; scalar for a model from elsewhere."""
    from assay.models.loading import resolve_model
    from assay.models.spec import RewardModelSpec

    folder = Path(resolve_model(name))
    spec = RewardModelSpec.read(folder) if folder.is_dir() else None
    return spec.kind if spec is not None else "scalar"


def find_workspace(named: Path | None) -> Workspace | None:
    """The named workspace, else the one that every command finds, else None."""
    from assay.workspace import Workspace

    if named is not None:
        return Workspace.open(named)
    try:
        return Workspace.find()
    except NotFoundError:
        return None
