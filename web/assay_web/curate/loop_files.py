"""YAML files of loops and judges in the workspace: in its root and in its folder `loops`.

The page can run only these files. A loop whose file is elsewhere or missing is written to `loops` from its settings in
the store when it is run again.
"""

import json
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import ConfigDict, Field

from assay.errors import AssayError, ConflictError, NotFoundError
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import Stage1Config
from assay_web.curate.replies import LoopFile
from assay_web.server.request_body import RequestBody

FOLDER = "loops"
LARGEST = 1_000_000  #: bytes of a file that is looked at
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^-\s][^\x00-\x1f]*$")]


class NewLoop(RequestBody):
    """A loop in a few fields; the file may be edited before it begins, and has every other setting. Without
    `judges` the source's label and the loop's reward model vote for silver."""

    model_config = ConfigDict(frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.+-]{0,79}$")]
    iterations: Annotated[int, Field(ge=1, le=100)] = 4
    seed: Annotated[int, Field(ge=0)] = 200
    people_seed: Annotated[int, Field(ge=0)] = 100
    people_per_iteration: Annotated[int, Field(ge=0)] = 50
    overlap: Annotated[int, Field(ge=1, le=20)] = 1
    judges: Name | None = None
    max_cost: Annotated[float, Field(ge=0)] | None = None
    sources: tuple[Name, ...] = ()
    base: Name = "smollm2"
    encoder: Name = "minilm"


def begun_loops(workspace: Workspace) -> dict[str, str]:
    """name -> settings as JSON, of the loops of the store."""
    with workspace.store.unit() as db:
        return dict(db.execute("SELECT loop, config::VARCHAR FROM loops ORDER BY created_at DESC").fetchall())


def loop_files(workspace: Workspace, begun: dict[str, str]) -> list[LoopFile]:
    """`begun`: name -> settings (JSON) of the loops of the store."""
    files = []
    for path in _yaml_files(workspace.root):
        payload = _payload(path)
        if not isinstance(payload, dict) or "name" not in payload:
            continue
        file = path.relative_to(workspace.root).as_posix()
        try:
            config = Stage1Config.read(path)
        except AssayError as error:
            files.append(LoopFile(file=file, name=None, begun=False, iterations=None, problem=str(error)))
            continue
        files.append(
            LoopFile(
                file=file, name=config.name, begun=config.name in begun, iterations=config.iterations, problem=None
            )
        )
    described = {one.name for one in files}
    for name, settings in begun.items():
        if name not in described:
            number = json.loads(settings)["iterations"]
            files.append(LoopFile(file=_default_file(name), name=name, begun=True, iterations=number, problem=None))
    return files


def judge_files(workspace: Workspace) -> list[str]:
    """Files with a list of judges."""
    return [
        path.relative_to(workspace.root).as_posix()
        for path in _yaml_files(workspace.root)
        if isinstance(payload := _payload(path), dict) and isinstance(payload.get("judges"), list)
    ]


def other_files(workspace: Workspace) -> list[str]:
    """Files that describe neither judges nor a loop of curation."""
    described = {*judge_files(workspace), *(one.file for one in loop_files(workspace, {}) if one.problem is None)}
    files = (path.relative_to(workspace.root).as_posix() for path in _yaml_files(workspace.root))
    return [file for file in files if file not in described]


def find_file(workspace: Workspace, file: str) -> Path:
    """One of the workspace's files by its relative path. Raises NotFoundError."""
    for path in _yaml_files(workspace.root):
        if path.relative_to(workspace.root).as_posix() == file:
            return path
    raise NotFoundError(f"no {file!r} among the files of the workspace: they lie in it, or in its folder {FOLDER}")


def loop_of(workspace: Workspace, file: str, begun: dict[str, str]) -> Stage1Config:
    """The loop of a file, or one of the store that has none. Raises NotFoundError, BadInputError."""
    for name, settings in begun.items():
        if file == _default_file(name) and not (workspace.root / file).exists():
            return Stage1Config.of(json.loads(settings))
    return Stage1Config.read(find_file(workspace, file))


def write_loop_file(workspace: Workspace, file: str, config: Stage1Config) -> None:
    """Write the loop's file where it is not there."""
    path = workspace.root / file
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        plain = json.loads(json.dumps(config.to_dict()))
        with replacing(path) as temporary:
            temporary.write_text(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8")


def new_loop(workspace: Workspace, settings: NewLoop, begun: dict[str, str]) -> str:
    """Write a new loop's file; its relative path. Raises ConflictError where the name is taken."""
    file = _default_file(settings.name)
    names = {one.name for one in loop_files(workspace, begun)}
    if settings.name in names or (workspace.root / file).exists():
        raise ConflictError(f"there is a loop {settings.name!r} already: choose another name")
    payload: dict[str, object] = {"name": settings.name, "iterations": settings.iterations, "seed": settings.seed}
    if settings.sources:
        payload["sources"] = list(settings.sources)
    if settings.judges is not None:
        payload["judges"] = str(find_file(workspace, settings.judges))
    else:
        payload |= {"source_votes": True, "model_votes": True}
    if settings.max_cost is not None:
        payload["max_cost"] = settings.max_cost
    people = {"seed": settings.people_seed, "per_iteration": settings.people_per_iteration, "overlap": settings.overlap}
    payload |= {"people": people, "model": {"base": settings.base}, "encoder": settings.encoder}
    Stage1Config.of(payload)
    path = workspace.root / file
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(payload, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return file


def _default_file(name: str) -> str:
    return f"{FOLDER}/{name}.yaml"


def _yaml_files(root: Path) -> list[Path]:
    folders = (root, root / FOLDER)
    paths = [path for folder in folders for kind in ("*.yaml", "*.yml") for path in folder.glob(kind)]
    return sorted(path for path in paths if path.is_file() and path.resolve().is_relative_to(root.resolve()))


def _payload(path: Path) -> object:
    try:
        if path.stat().st_size > LARGEST:
            return None
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    except yaml.YAMLError:
        return {"name": None}  # shown with its problem
