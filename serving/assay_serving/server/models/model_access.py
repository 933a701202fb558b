"""Which models an administrator may load over the network: an allow-list, because a key is not a shell.

Covers: references and plans of `/v1/admin/` against `model_folders`. Leaves out: what the command line and the
configuration name, whose author runs the server; what a checkpoint's files may hold (`assay.models.safe_files`).

An entry of the list is a folder (with all below it), `hub:OWNER/NAME` or `hub:OWNER/*`, or the beginning of a web
address (`http://gpu:8000`) for engines behind one. Names of the workspace's own models are always allowed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, NotFoundError
from assay_serving.model_config import ModelConfig

HUB = "hub:"
_LONGEST = 1024
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_BARE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REFUSED = "may not be loaded here: it is in none of the server's model_folders (--model-folder)"


def is_address(entry: str) -> bool:
    """Whether an entry of the list is a hub's name or a web address, not a folder."""
    return _ADDRESS.match(entry) is not None


def check_plan(plan: ModelConfig, allowed: Sequence[str], workspace: Path | None = None) -> ModelConfig:
    """The plan with the folder that its reference stands for. Raises what `check_reference` raises."""
    _check_code(plan)
    _check_addresses(plan.engine_options, allowed)
    return replace(plan, reference=check_reference(plan.reference, allowed, workspace), own_code=False)


def check_reference(reference: str, allowed: Sequence[str], workspace: Path | None = None) -> str:
    """What to load: an absolute path, a hub id, a name of the workspace.

    Raises BadInputError for what is not allowed, whether or not it exists: nobody learns from it what files there are.
    NotFoundError for a name that is not there in the folders that are allowed.
    """
    if not isinstance(reference, str) or not reference or len(reference) > _LONGEST or not reference.isprintable():
        raise BadInputError("not the name of a model", field="reference")
    if _ADDRESS.match(reference):
        if any(is_address(entry) and _begins(reference, entry) for entry in allowed if not entry.startswith(HUB)):
            return reference
        raise BadInputError(_REFUSED, field="reference")
    if _HUB_NAME.fullmatch(reference):
        owner = reference.partition("/")[0]
        if f"{HUB}{reference}" in allowed or f"{HUB}{owner}/*" in allowed:
            return reference
    folders = [Path(entry).expanduser().resolve() for entry in allowed if not is_address(entry)]
    if _in_workspace(reference, workspace):
        return reference
    path = Path(reference)
    if reference.startswith("~"):
        raise BadInputError(_REFUSED, field="reference")
    inside = False
    for folder in folders:
        # Links are followed first: one in an allowed folder does not lead out of it.
        for candidate in (folder / path, path.absolute()):
            target = candidate.resolve()
            if target == folder or folder in target.parents:
                inside = True
                if target.exists():
                    return str(target)
    if inside and folders:
        raise NotFoundError("no such model in the folders that are allowed")
    raise BadInputError(_REFUSED, field="reference")


def _in_workspace(reference: str, workspace: Path | None) -> bool:
    """Whether it is the name or id of a model that lies in the workspace."""
    from assay.runs.record import locate_model
    from assay_serving.model_reference import find_workspace

    opened = find_workspace(workspace)
    if opened is None or not _BARE_NAME.fullmatch(reference):
        return False
    folder, artifact = locate_model(opened, reference)
    return artifact is not None and opened.root in Path(folder).resolve().parents


def _check_code(plan: ModelConfig) -> None:
    """Nothing that names Python code of its own, or a file, comes over the network."""
    for field in ("engine", "kind"):
        if ":" in (getattr(plan, field) or ""):
            raise BadInputError("may only be a registered name here, not module:Name or file.py:Name", field=field)
    if plan.engine_options.get("ca") is not None:
        raise BadInputError("may only be set by who starts the server", field="engine_options")


def _check_addresses(options: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for name, value in options.items():
        if (
            isinstance(value, str)
            and (name == "url" or _ADDRESS.match(value.strip()))
            and not any(is_address(entry) and _begins(value, entry) for entry in allowed if not entry.startswith(HUB))
        ):
            raise BadInputError("this address is in none of the server's model_folders", field=name)


def _begins(address: str, entry: str) -> bool:
    """Whether the address is the entry or below it: `http://gpu:8000` is no beginning of `http://gpu:8000.evil.org`."""
    suffix = address.removeprefix(entry.rstrip("/"))
    return address.startswith(entry.rstrip("/")) and (suffix == "" or suffix[0] in "/?#")
