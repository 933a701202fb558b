"""A description of an online loop, made in the page from a few fields and the commented example of `assay loop`.

Leaves out: every other setting, which the file takes; running it, which is a job.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field

from assay.errors import ConflictError
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.online.config import EXAMPLE, load_loop
from assay_web.curate.loop_files import FOLDER, Name
from assay_web.server.request_body import RequestBody

Count = Annotated[int, Field(ge=1, le=10**6)]


class NewOnlineLoop(RequestBody):
    """`labels`: bought in all, `first_labels` of them on the untrained policy, then `count` every `every` steps.
    `source`: who labels: the prompts' own constraints, or people in the queue loop-NAME."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.+-]{0,79}$")]
    policy: Name = "smollm2"
    prompts: Name = "constrained:128"
    steps: Count = 200
    source: Literal["verifier", "people"] = "verifier"
    first_labels: Count = 64
    every: Count = 5
    count: Count = 8
    labels: Count = 256


class LoopFileReply(BaseModel):
    """`file`: relative to the workspace."""

    file: str


def write_online_loop(workspace: Workspace, loop: NewOnlineLoop) -> str:
    """The file, in the workspace's folder of loops. Raises ConflictError where it is there, BadInputError for what the
    command would refuse."""
    path = workspace.root / FOLDER / f"{loop.name}.yaml"
    if path.exists():
        raise ConflictError(f"there is a file {loop.name!r} among the loops already: choose another name")
    payload: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    payload |= {"name": loop.name, "policy": loop.policy}
    payload["set"]["steps"] = loop.steps
    payload["training"]["prompts"] = [loop.prompts]
    payload["reward"]["labels"] = loop.first_labels
    payload["labels"] |= {"source": {"kind": loop.source}, "every": loop.every, "count": loop.count}
    payload["budget"]["labels"] = loop.labels
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(payload, sort_keys=False, allow_unicode=True), encoding="utf-8")
        load_loop(temporary)
    return path.relative_to(workspace.root).as_posix()
