"""A reward server that was started from the page: its process, its folder, starting and stopping it.

Covers: the folder, from which any later web server knows the endpoint again; the key that this web server and no
browser has; the address, read from what the server prints; the outcome. Leaves out: what a running server says of
itself and orders to it (`live`), the keys of its users (`assay_serving.server.auth.key_store`).

    WORKSPACE/served/ID/            endpoint.json, key, output.txt, stop.json, swap.json, exit.json
"""

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import TypeAdapter

from assay.errors import BackendError, BadInputError, ConflictError, NotFoundError
from assay.runs.process import RunProcess, birth_of
from assay.settings import check_settings
from assay.system.atomic_files import replacing
from assay.system.full_disk import full_disk_line
from assay.workspace import Workspace
from assay_web.processes.child import EXIT_FILE, reserve
from assay_web.processes.launch import launch, read_json, write_json
from assay_web.processes.log import OUTPUT_FILE, tail
from assay_web.settings import RewardServer

FOLDER = "served"
ENDPOINT_FILE, KEY_FILE, STOP_FILE, SWAP_FILE = "endpoint.json", "key", "stop.json", "swap.json"
KEY = "ASSAY_API_KEY"
SHOWN, TAIL = 30, 12_000  #: ended endpoints listed; characters of a log's end
EVERYBODY = "0.0.0.0"

EndpointState: TypeAlias = Literal["starting", "running", "stopping", "stopped", "failed"]


@dataclass(frozen=True)
class EndpointSettings:
    """`model`: of the store, or what `assay serve` loads. `name`: that requests use. `port` 0: any free one.
    `network`: other machines may reach it; else this one alone."""

    model: str
    name: str
    port: Annotated[int, Ge(0), Le(65535)] = 0
    network: bool = False
    device: str = "auto"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_settings(self)
        for value, field in ((self.model, "model"), (self.name, "name")):
            if not value.strip() or value.startswith("-") or not value.isprintable():
                raise BadInputError("a name is printable and does not begin with '-'", field=field)

    def arguments(self) -> list[str]:
        """Of `assay`."""
        arguments = ["serve", self.model, "--name", self.name, "--port", str(self.port)]
        arguments += ["--host", EVERYBODY] if self.network else []
        arguments += ["--device", self.device] if self.device != "auto" else []
        return arguments + (["--dtype", self.dtype] if self.dtype != "float32" else [])

    def command(self) -> str:
        """As typed in the workspace's folder."""
        return shlex.join(["assay", *self.arguments()])


@dataclass(frozen=True)
class Endpoint:
    """As it was started. Times are seconds since the epoch."""

    id: str
    settings: EndpointSettings
    by: str
    started: float
    process: RunProcess
    folder: Path

    def key(self) -> str:
        return (self.folder / KEY_FILE).read_text(encoding="utf-8")

    def url(self) -> str | None:
        """None until its model is loaded."""
        try:
            with (self.folder / OUTPUT_FILE).open(encoding="utf-8", errors="replace") as output:
                for line in output:
                    if line.startswith('{"url"'):
                        return str(json.loads(line)["url"])
        except (OSError, ValueError, KeyError):  # the line is being written
            pass
        return None

    def state(self) -> tuple[EndpointState, str | None, float | None]:
        """What its process is at, why, and when it ended. Whether it answers: `live`."""
        stopped = read_json(self.folder / STOP_FILE)
        exited = read_json(self.folder / EXIT_FILE)
        if self.process.is_alive() and exited is None:
            if stopped is not None:
                return "stopping", f"{stopped['by']} stopped it; it answers what it was asked", None
            return ("running" if self.url() else "starting"), None, None
        ended = float(exited["at"]) if exited is not None else None
        if stopped is not None:
            return "stopped", f"stopped by {stopped['by']}", ended
        if exited is None:
            return "stopped", "its process was ended from outside", None
        if exited["code"] in (0, 130, 143):
            return "stopped", "stopped from outside", ended
        return "failed", exited["error"] or f"it ended with status {exited['code']}", ended

    def log(self) -> str:
        """The end of what it printed."""
        return "\n".join(line for line in tail(self.folder, TAIL).split("\n") if not line.startswith('{"url"'))

    def note(self, file: str, **what: Any) -> None:
        """Write one of the endpoint's files."""
        write_json(self.folder / file, **what)


_ENDPOINTS = TypeAdapter(Endpoint)


def start_endpoint(workspace: Workspace, settings: EndpointSettings, by: str) -> Endpoint:
    """Raises ConflictError for a port that another endpoint of this workspace has or waits for, BackendError where the
    disk takes no more: then nothing runs."""
    if settings.port and (other := _with_port(workspace, settings.port)) is not None:
        raise ConflictError(f"{other.settings.name} is served on port {settings.port} already")
    now = time.time()
    folder = workspace.root / FOLDER / f"served-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    try:
        return _started(workspace, settings, by, now, folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise BackendError(f"the model is not served: {full_disk_line(error) or error}") from error


def _started(workspace: Workspace, settings: EndpointSettings, by: str, now: float, folder: Path) -> Endpoint:
    folder.mkdir(parents=True)
    key = secrets.token_urlsafe(32)
    with os.fdopen(os.open(folder / KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(key)
    reserve(folder)
    child = launch(workspace, folder, [*settings.arguments(), "--json"], {KEY: key})
    began = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    process = RunProcess(child.pid, socket.gethostname(), birth_of(child.pid), "serve", began)
    endpoint = Endpoint(folder.name, settings, by, now, process, folder)
    try:
        with replacing(folder / ENDPOINT_FILE) as temporary:
            temporary.write_bytes(_ENDPOINTS.dump_json(endpoint, exclude={"id", "folder"}))
    except BaseException:  # else nobody could stop what no file names
        child.kill()
        raise
    return endpoint


def stop_endpoint(endpoint: Endpoint, by: str) -> None:
    """Ask it to end, which answers queued requests first; asked once more, it ends at once. Raises ConflictError if it
    has ended or cannot be reached."""
    state, _, _ = endpoint.state()
    if state in ("stopped", "failed"):
        raise ConflictError(f"{endpoint.settings.name} is not running")
    if state == "stopping":
        _kill(endpoint.process)
        return
    endpoint.process.interrupt()
    endpoint.note(STOP_FILE, by=by, at=time.time())


def endpoints_of(workspace: Workspace) -> list[Endpoint]:
    """The newest first: all that run, and at most SHOWN that have ended."""
    folders = sorted((workspace.root / FOLDER).glob("served-*"), reverse=True)
    endpoints = [endpoint for folder in folders if (endpoint := _read(folder)) is not None]
    return [each for number, each in enumerate(endpoints) if number < SHOWN or each.process.is_alive()]


def endpoint_of(workspace: Workspace, endpoint_id: str) -> Endpoint:
    """Raises NotFoundError."""
    for endpoint in endpoints_of(workspace):
        if endpoint.id == endpoint_id:
            return endpoint
    raise NotFoundError("there is no such served model")


def running_servers(workspace: Workspace) -> list[RewardServer]:
    """Those that have loaded their model, with the keys to ask them."""
    return [
        RewardServer(url, endpoint.key())
        for endpoint in endpoints_of(workspace)
        if endpoint.state()[0] == "running" and (url := endpoint.url()) is not None
    ]


def _with_port(workspace: Workspace, port: int) -> Endpoint | None:
    running = (each for each in endpoints_of(workspace) if each.state()[0] not in ("stopped", "failed"))
    return next((each for each in running if port in (each.settings.port, _port(each.url() or ""))), None)


def _port(url: str) -> int | None:
    return urlsplit(url).port


def _kill(process: RunProcess) -> None:
    """Its whole group, of which it is the leader. Raises ConflictError where it may be another process."""
    if process.birth is None or not process.is_alive():
        raise ConflictError("its process is gone, or cannot be told from others here")
    os.killpg(process.pid, signal.SIGKILL)


def _read(folder: Path) -> Endpoint | None:
    payload = read_json(folder / ENDPOINT_FILE)
    if payload is None:
        return None
    return _ENDPOINTS.validate_python(payload | {"id": folder.name, "folder": folder})
