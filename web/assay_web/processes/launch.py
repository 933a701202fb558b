"""Starting an `assay` command in a process group of its own, which goes on when the web server ends; small files of
its folder.

Leaves out: what the process does (`child`), its output (`log`), which commands there are (`jobs`, `served`).
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_web.processes.log import OUTPUT_FILE

CHILD = "assay_web.processes.child"
#: SAFEPATH: what lies in the workspace's folder, uploads too, is no code that can be imported.
PLAIN = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}


def launch(
    workspace: Workspace,
    folder: Path,
    arguments: Sequence[str],
    secrets: Mapping[str, str],
    *,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Run `assay ARGUMENTS` in the workspace's folder. `secrets`: environment variables, which process listings do not
    show as they show arguments. `pass_fds`: locks that the process keeps for as long as it lives. Raises OSError."""
    with (folder / OUTPUT_FILE).open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", CHILD, str(folder), *arguments],
            cwd=workspace.root,
            env={**os.environ, **secrets, "ASSAY_WORKSPACE": str(workspace.root), **PLAIN},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    threading.Thread(target=child.wait, name=f"assay-{folder.name}", daemon=True).start()  # leaves no zombie
    return child


def read_json(path: Path) -> dict[str, Any] | None:
    """None for a file that is not there or is being written."""
    try:
        payload: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return payload


def write_json(path: Path, **what: Any) -> None:
    """Whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(what), encoding="utf-8")
