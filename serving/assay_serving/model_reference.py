"""What a reference to a model stands for: a URL, a folder, a hub id, an artifact of the workspace, a description file.

Leaves out: opening it (`model_loader`).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import NotFoundError, nearest_names
from assay.models.readings import implicit_parts

if TYPE_CHECKING:
    from assay.models.spec import RewardModelSpec
    from assay.store.media import MediaFolder
    from assay.workspace import Workspace

_NAMES_SHOWN = 20


def is_url(reference: str) -> bool:
    return reference.startswith(("http://", "https://"))


def kind_of(reference: str) -> str:
    """The kind in its spec; scalar for a model without one; "ensemble", "head_ensemble", "composed" or "rubric" for
    the description of one, "implicit" for `dpo:POLICY@REFERENCE`."""
    if implicit_parts(reference) is not None:
        return "implicit"
    if is_composed(reference):
        return "composed"
    if is_rubric(reference):
        return "rubric"
    if is_head_ensemble(reference):
        return "head_ensemble"
    if is_ensemble(reference):
        return "ensemble"
    spec = known_spec(reference)
    return spec.kind if spec is not None else "scalar"


def is_ensemble(reference: str) -> bool:
    """Whether it is the description of an ensemble of models, or a folder that holds one."""
    path = Path(reference).expanduser()
    if path.suffix in (".yaml", ".yml"):
        other = is_composed(reference) or is_head_ensemble(reference) or is_rubric(reference)
        return path.is_file() and not other
    return (path / "ensemble.yaml").is_file()


def is_composed(reference: str) -> bool:
    """Whether it is a file that says `kind: composed`, or a folder that holds composed.yaml."""
    return _describes(Path(reference).expanduser(), "composed", "composed.yaml")


def is_head_ensemble(reference: str) -> bool:
    """Whether it is a file that says `kind: head_ensemble`, or a folder that holds heads.yaml."""
    return _describes(Path(reference).expanduser(), "head_ensemble", "heads.yaml")


def is_rubric(reference: str) -> bool:
    """Whether it is a file that says `kind: rubric`, or a folder that holds rubric.yaml."""
    return _describes(Path(reference).expanduser(), "rubric", "rubric.yaml")


def _describes(path: Path, kind: str, file: str) -> bool:
    if path.suffix not in (".yaml", ".yml"):
        return (path / file).is_file()
    # Not parsed: the reader of the right kind reports a file that is not quite YAML.
    declaration = re.compile(rb"""^(\{\s*)?["']?kind["']?\s*:\s*["']?%s\b""" % kind.encode(), re.MULTILINE)
    return path.is_file() and declaration.search(path.read_bytes()) is not None


def is_description(reference: str) -> bool:
    """Whether it is made of other models, which it names, and so has no spec of its own."""
    return any(is_one(reference) for is_one in (is_ensemble, is_head_ensemble, is_composed, is_rubric))


def known_spec(reference: str) -> "RewardModelSpec | None":
    """The spec in the model's folder; None for a model without one and for what is made of several models."""
    if implicit_parts(reference) is not None or is_description(reference):
        return None
    from assay.models.loading import resolve_model
    from assay.models.spec import RewardModelSpec

    folder = Path(resolve_model(reference))
    return RewardModelSpec.read(folder) if folder.is_dir() else None


def located(reference: str, workspace: Path | None = None) -> str:
    """The folder or hub id of a model: see `assay.runs.record.locate_model`.

    Raises NotFoundError with the workspace's models for a bare name that is none of them and nothing else.
    """
    from assay.models.loading import OWN
    from assay.runs.record import MODEL_KINDS, locate_model

    opened = find_workspace(workspace)
    folder, artifact = locate_model(opened, reference)
    pair = implicit_parts(reference) is not None
    path_like = pair or "/" in reference or reference.startswith((".", "~")) or Path(reference).exists()
    if opened is None or artifact is not None or path_like or reference in OWN:
        return folder
    with opened.store.unit() as db:
        rows = db.execute(
            """SELECT name FROM artifacts WHERE list_contains($kinds, kind)
               GROUP BY name ORDER BY max(created_at) DESC""",
            {"kinds": list(MODEL_KINDS)},
        ).fetchall()
    if not rows:
        return folder
    names = [str(name) for (name,) in rows[:_NAMES_SHOWN]]
    more = f" and {len(rows) - len(names)} more" if len(rows) > len(names) else ""
    hint = nearest_names(reference, OWN)  # those of the workspace `locate_model` compares
    raise NotFoundError(f"no model {reference!r}; the workspace has {', '.join(names)}{more}{hint}")


def find_workspace(path: Path | None) -> "Workspace | None":
    """The workspace at `path`; without one, the workspace that every command finds, or None."""
    from assay.workspace import Workspace

    if path is not None:
        return Workspace.open(path)
    try:
        return Workspace.find()
    except NotFoundError:
        return None


def media_of(loader: object) -> "Callable[[], MediaFolder | None]":
    """Gives the folder of images of the workspace that the loader, or every command, finds; None without one."""

    def media() -> "MediaFolder | None":
        workspace = find_workspace(getattr(loader, "workspace", None))
        return None if workspace is None else workspace.media

    return media
