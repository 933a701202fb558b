"""From what a person names to something that scores: a URL, a folder, a hub id, an artifact of the workspace.

Leaves out: scoring. Commands of several parts share it, so that `--reward` and `--model` mean the same everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import NotFoundError

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
    workspace: Path | None = None,
    wait: float = 10.0,
) -> Scorer:
    """A scorer for a URL of a reward server (`model` and `api_key` are its), or for a model to load here.

    `wait`: seconds to give a server that is still loading; then BackendError.
    """
    if is_url(reference):
        from assay_serving.client import RemoteScorer, RewardClient

        client = RewardClient(reference, model=model, api_key=api_key)
        client.wait_until_ready(wait)
        return RemoteScorer(client)
    from assay.runs import locate_model
    from assay_serving.transformers_engine import TOKEN_BUDGET, TransformersScorer

    folder = locate_model(find_workspace(workspace), reference)[0]
    return TransformersScorer.load(
        folder,
        served_as=model or (reference if folder != reference else None),
        device=device,
        dtype=dtype,
        token_budget=token_budget or TOKEN_BUDGET,
        max_length=max_length,
    )


def find_workspace(named: Path | None) -> Workspace | None:
    """The named workspace, else the one that every command finds, else None."""
    from assay.workspace import Workspace

    if named is not None:
        return Workspace.open(named)
    try:
        return Workspace.find()
    except NotFoundError:
        return None
