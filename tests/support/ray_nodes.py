"""A Ray cluster of nodes of this machine: processes that share its network, or network namespaces on a bridge.

Leaves out: what is done on it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

#: Of every cluster of this process.
TOKEN = secrets.token_hex(32)
_HEAD, _NODE = 0, 1
_START_S = 90


def variables() -> dict[str, str]:
    """Of nodes and drivers. Workers import the modules beside this one."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_raylet_start_wait_time_s": "180",
        "RAY_memory_monitor_refresh_ms": "0",  # it kills workers of a machine whose memory others use
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Two nodes with one slot each, which refuse whoever has no token."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables().items():
            patch.setenv(name, value)
        import ray
        from ray._private.authentication_test_utils import reset_auth_token_state
        from ray.cluster_utils import Cluster

        reset_auth_token_state()  # another file may have imported Ray, which reads the variables as it is imported
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1, include_dashboard=False)
        try:
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


def namespaces_missing() -> str | None:
    """Why this machine has no network namespaces for us; None where it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    name = f"assay-{secrets.token_hex(3)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine makes no network namespaces"
    _ip("netns", "del", name)
    return None


class NamespaceNodes:
    """A head and a node with one slot each, in network namespaces of their own on one bridge. The head's is also the
    driver's, so that a cut parts the driver from the node. A node whose Ray has ended is started again, as a service
    manager does it, unless it was killed here."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._mark, self.environment = secrets.token_hex(3), {**os.environ, **variables(), **environment}
        self._folder = Path(tempfile.mkdtemp(prefix="ry", dir="/tmp"))  # sockets' paths are short
        self._bridge, self._subnet = f"ab{self._mark}", f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}"
        self._nodes: dict[int, subprocess.Popen[str]] = {}
        self._closing = threading.Event()
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("link", "set", self._bridge, "up")
        for number in (_HEAD, _NODE):
            space, link = self._space(number), self._link(number)
            _ip("netns", "add", space)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", space, "addr", "add", f"{self._address(number)}/24", "dev", "eth0")
            for name in ("lo", "eth0"):
                _ip("-n", space, "link", "set", name, "up")
            _ip("link", "set", link, "master", self._bridge, "up")

    @property
    def address(self) -> str:
        return f"{self._address(_HEAD)}:6379"

    def start(self) -> None:
        self._start(_HEAD)
        self._start(_NODE)
        threading.Thread(target=self._supervise, daemon=True).start()

    def wait(self) -> None:
        """Until the node is up."""
        for _ in range(4 * _START_S * 10):
            process = self._nodes.get(_NODE)
            if process is not None and process.poll() is None:
                return
            time.sleep(0.1)
        raise RuntimeError("the node does not come up")

    def driver(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """A process beside the head."""
        inside = ["ip", "netns", "exec", self._space(_HEAD), *command]
        return subprocess.Popen(inside, env=self.environment, text=True, **options)

    def on_node(self, pid: int) -> bool:
        """Whether the process is the node's, not the head's."""
        return pid in self._pids(_NODE)

    def kill_node(self) -> None:
        self._nodes.pop(_NODE, None)
        self._kill(_NODE)

    def start_node(self) -> None:
        self._start(_NODE)

    def cut(self, *, silently: bool) -> None:
        """Part the node from the head. `silently`: its own end still looks plugged in."""
        _ip("link", "set", self._link(_NODE), *(["nomaster"] if silently else ["down"]))

    def mend(self) -> None:
        _ip("link", "set", self._link(_NODE), "master", self._bridge, "up")

    def close(self) -> None:
        self._closing.set()
        for number in (_NODE, _HEAD):
            self._kill(number)
            _ip("netns", "del", self._space(number))
        _ip("link", "del", self._bridge)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, number: int, tries: int = 4) -> None:
        temporary = self._folder / secrets.token_hex(2)
        head = ["--head", "--port", "6379", "--include-dashboard", "false"]
        where = head if number == _HEAD else ["--address", self.address]
        options = ["--num-cpus", "1", "--object-store-memory", "80000000", "--block"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *options]
        command += ["--node-ip-address", self._address(number), "--temp-dir", str(temporary)]
        inside = ["ip", "netns", "exec", self._space(number), *command]
        log = temporary.with_suffix(".log")
        with log.open("w") as stream:
            process = subprocess.Popen(inside, env=self.environment, text=True, stdout=stream, stderr=stream)
        for _ in range(_START_S * 10):
            if "Ray runtime started" in log.read_text(encoding="utf-8"):
                self._nodes[number] = process
                return
            if process.poll() is not None or self._closing.wait(0.1):
                break
        self._kill(number)  # now and then it hangs as it starts
        process.wait()
        if tries > 1 and not self._closing.is_set():
            self._start(number, tries - 1)
        elif not self._closing.is_set():
            raise RuntimeError(log.read_text(encoding="utf-8")[-2000:])

    def _kill(self, number: int) -> None:
        while pids := self._pids(number):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _supervise(self) -> None:
        while not self._closing.wait(0.5):
            process = self._nodes.get(_NODE)
            if process is not None and process.poll() is not None:
                self._nodes.pop(_NODE, None)
                self._kill(_NODE)
                self._start(_NODE)

    def _pids(self, number: int) -> set[int]:
        space = os.stat(f"/var/run/netns/{self._space(number)}").st_ino
        pids = set()
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            with suppress(OSError):
                if path.stat().st_ino == space:
                    pids.add(int(path.parts[2]))
        return pids

    def _space(self, number: int) -> str:
        return f"assay-{self._mark}-{number}"

    def _link(self, number: int) -> str:
        return f"av{self._mark}{number}"

    def _address(self, number: int) -> str:
        return f"{self._subnet}.{2 + number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
