"""Label Studio projects that this workspace made: creating, finding them, noticing deletion or a rebuild."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError, NotFoundError
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.config import ProjectConfig
from assay_pipelines.annotation.label_studio.connection import said_clearly

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio

DESCRIPTION = "Made by Assay. Tasks are pushed and answers pulled by its commands `assay label-studio push` and `pull`."


NONE_YET = "no Label Studio project in this workspace yet: assay label-studio create TITLE --server URL"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Project:
    """A project as recorded here. `born_at`: when the server says that it was made."""

    server: str
    id: int
    title: str
    born_at: datetime
    config: ProjectConfig

    @property
    def url(self) -> str:
        return f"{self.server}/projects/{self.id}"


def create_project(
    workspace: Workspace, client: "LabelStudio", server: str, title: str, config: ProjectConfig, run_id: str | None
) -> Project:
    """Make the project on the server and record it. Raises BadInputError for a title that is taken here."""
    if any(p.title == title for p in list_projects(workspace, server)):
        raise BadInputError(f"this workspace has a project {title!r} on {server} already: choose another title")
    with said_clearly(server):
        created = client.projects.create(
            title=title,
            description=DESCRIPTION,
            label_config=config.label_config,
            expert_instruction=config.guideline,
            show_instruction=bool(config.guideline),
            show_collab_predictions=config.show_predictions,
            maximum_annotations=config.overlap,
            show_skip_button=True,
            # what a person has skipped is answered: it must not come back to the same person
            skip_queue="REQUEUE_FOR_OTHERS",
        )
    project = Project(server, int(created.id), title, _born(created.created_at), config)
    with workspace.store.unit() as db:
        db.execute(
            """INSERT INTO label_studio_projects (server, project_id, title, born_at, settings, run_id)
               VALUES (?, ?, ?, ?, ?, ?)""",
            [server, project.id, title, project.born_at, json.dumps(asdict(config)), run_id],
        )
    return project


def list_projects(workspace: Workspace, server: str | None = None) -> list[Project]:
    """Those recorded here, newest first."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT server, project_id, title, epoch_us(born_at), settings FROM label_studio_projects
               WHERE $server IS NULL OR server = $server ORDER BY created_at DESC, project_id DESC""",
            {"server": server},
        ).fetchall()
    return [
        Project(address, number, title, EPOCH + timedelta(microseconds=born), ProjectConfig(**json.loads(settings)))
        for address, number, title, born, settings in rows
    ]


def find_project(workspace: Workspace, name: str | None, server: str | None = None) -> Project:
    """By number or title; without a name the only one. Raises NotFoundError, BadInputError for an ambiguous name."""
    projects = list_projects(workspace, server)
    matching = [p for p in projects if name is None or p.title == name or str(p.id) == name]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{p.title!r} ({p.id} on {p.server})" for p in projects[:10])
    if not projects:
        raise NotFoundError(NONE_YET)
    if not matching:
        raise NotFoundError(f"no Label Studio project {name!r}; there are: {listed}")
    raise BadInputError(f"which Label Studio project? There are: {listed}; say which, with --server if need be")


def check_project(client: "LabelStudio", project: Project) -> Any:
    """The server's own project. Raises NotFoundError where it is gone, BadInputError where it is another one."""
    with said_clearly(project.server, f"project {project.id} ({project.title!r})"):
        remote = client.projects.get(id=project.id)
    if _born(remote.created_at) != project.born_at:
        raise BadInputError(
            f"project {project.id} on {project.server} is not the one this workspace made (another creation time): "
            "was the server rebuilt? Make a new project"
        )
    return remote


def _born(value: datetime | str) -> datetime:
    created_at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return created_at.replace(tzinfo=UTC) if created_at.tzinfo is None else created_at.astimezone(UTC)
