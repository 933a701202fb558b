"""Which models a person may load in a stage: curators those of the workspace and the hub, administrators any folder.

A stage runs with the permissions of the server's user, so paths in forms are restricted. Leaves out: files of loops and
judges (`loop_files`) and the models they name, since writing them takes access to the workspace's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.errors import BadInputError
from assay.http.problems import ProblemError
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_web.access.permissions import may
from assay_web.accounts.sessions import Person
from assay_web.curate.stage_settings import ConsistencyStage, Stage2Stage, StageSettings


def models_of(settings: StageSettings) -> tuple[str, ...]:
    """Models named in the settings."""
    if isinstance(settings, Stage2Stage):
        return settings.best, settings.gold
    return settings.models if isinstance(settings, ConsistencyStage) else ()


def require_model_access(workspace: Workspace, person: Person, names: Sequence[str]) -> None:
    """Raises ProblemError 403 for a folder outside the workspace, BadInputError for one that is not there,
    NotFoundError for a slip of a model's name. An admin may name what the command may."""
    for name in names:
        try:
            path = (workspace.root / Path(name).expanduser()).resolve()  # as the stage, which runs there, will see it
            exists = path.exists()
        except RuntimeError as error:
            raise BadInputError(f"{name}: there is no such person on this machine", field="model") from error
        except (OSError, ValueError) as error:  # longer than names can be, or with a zero byte
            raise BadInputError(f"{name!r} can be no model's name", field="model") from error
        path_like = "/" in name or name.startswith((".", "~"))
        is_artifact = locate_model(workspace, str(path) if path_like else name)[1] is not None
        if is_artifact or may(person, "administer"):
            continue  # a model that a run made is known wherever it lies
        if "://" in name:
            raise ProblemError(403, f"{name!r} is an address: a stage loads models of the workspace or of the hub")
        if not path.is_relative_to(workspace.root.resolve()):
            raise ProblemError(
                403,
                f"{name!r} is outside the workspace: name one of its models, a folder in it or a model of the hub "
                f"(owner/name); other folders take the role admin, {person.name} has {person.role}",
            )
        if not exists and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
            raise BadInputError(f"no such folder in the workspace: {name}", field="model")
