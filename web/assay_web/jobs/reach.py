"""What a curator may name in the settings of a job: nothing outside the workspace, no address, no code.

A job runs with the permissions of the server's user. Curators may name files and models of the workspace, models of the
hub, and reward servers that the pages were started with; administrators whatever the command may. Leaves out: which
files of loops and judges there are (`assay_web.curate.loop_files`).
"""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import yaml

from assay.errors import BadInputError
from assay.http.problems import ProblemError
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_web.access.permissions import may
from assay_web.accounts.sessions import Person
from assay_web.curate.loop_files import find_file
from assay_web.jobs.kind import Settings

_PARTS = re.compile(r"[=,@#?\s\"'\[\]{}()]+")
_CODE = re.compile(r"(?P<module>[\w.]+):[A-Za-z_][\w.]*")
_DESCRIPTIONS = (".yaml", ".yml")
#: Settings whose files say what is run and asked, whatever the files are called.
_DESCRIBED = frozenset(("config", "judges", "recipe", "bench", "judge_profile"))
#: Settings that are texts, whatever they look like: `[/INST]` is no folder.
_TEXTS = frozenset(("stop", "separator"))
#: Settings with hosts: what else a curator may say there.
_HOSTS = {"on": re.compile(r"local(:[0-9]+)?|ray(:auto)?"), "fetch_from": re.compile(r"(?!)")}


def require_reach(workspace: Workspace, person: Person, settings: Settings, servers: Sequence[str] = ()) -> None:
    """Raises ProblemError 403 for what the person may not name; BadInputError for what no file can be called.
    `servers`: reward servers that may be named."""
    for name, value in settings.items():
        if name in _TEXTS:
            continue
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text:
                for reading in dict.fromkeys(_readings(text)):
                    _require(workspace, person, name, reading, servers)


def _readings(text: str) -> Iterator[str]:
    """The text, and what it says to commands that read it as KEY=YAML or as the query of a URL."""
    for plain in (text, unquote(text)):
        yield plain
        try:
            for token in yaml.scan(f"[{plain.partition('=')[2]}]"):
                if isinstance(token, yaml.ScalarToken) and token.value:
                    yield token.value
        except yaml.YAMLError:  # refused by the command, too
            continue


def _require(workspace: Workspace, person: Person, field: str, text: str, servers: Sequence[str]) -> None:
    takes = f"takes the role admin, {person.name} has {person.role}"
    if (plain := _HOSTS.get(field)) is not None and not may(person, "administer") and not plain.fullmatch(text):
        raise ProblemError(403, f"{text!r} names other machines: that {takes}")
    # Also with a model behind or a name in front; before an @ it would be somebody's name at another host.
    for server in sorted(servers, key=len, reverse=True) if "@" not in text else ():
        text = re.sub(rf"{re.escape(server.rstrip('/'))}/?(?=[#,\s\"'\])}}]|$)", "", text)
    root = workspace.root.resolve()
    for part in dict.fromkeys((text, *filter(None, _PARTS.split(text)))):
        if part == text and " " in part:
            continue  # a sentence, looked at word by word
        try:
            path = (root / Path(part).expanduser()).resolve()  # as the job, which runs there, will see it
            is_file = path.is_file()
        except RuntimeError as error:
            raise BadInputError(f"{part}: there is no such person on this machine", field=field) from error
        except (OSError, ValueError) as error:  # longer than names can be, or with a zero byte
            raise BadInputError(f"{part!r} can be no file's name", field=field) from error
        if may(person, "administer"):
            continue
        if "://" in part:
            allowed = "a job of a curator asks reward servers that the page knows"
            raise ProblemError(403, f"{part!r} is an address: {allowed}; another {takes}")
        if _names_code(part):
            raise ProblemError(403, f"{part!r} is code that would be run: that {takes}")
        if path.is_relative_to(root):
            if is_file and (field in _DESCRIBED or part.lower().endswith(_DESCRIPTIONS)):
                find_file(workspace, path.relative_to(root).as_posix())
            if (colon := part.find(":/")) >= 0:  # as dpo:/FOLDER
                _require(workspace, person, field, part[colon + 1 :], ())
            continue
        path_like = "/" in part or part.startswith((".", "~"))
        if locate_model(workspace, str(path) if path_like else part)[1] is None:  # what a run made may lie anywhere
            raise ProblemError(
                403,
                f"{part!r} is outside the workspace: name a model or file of it, or a model of the hub (owner/name); "
                f"another folder {takes}",
            )


def _names_code(part: str) -> bool:
    """`file.py:Name`, or `module:Name` of a module that can be imported."""
    if part.endswith(".py") or ".py:" in part:
        return True
    match = _CODE.fullmatch(part)
    return match is not None and importlib.util.find_spec(match["module"].partition(".")[0]) is not None
