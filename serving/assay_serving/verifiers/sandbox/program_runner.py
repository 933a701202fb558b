"""Running an untrusted program in a separate process, with hard limits.

Covers: a fresh `python -I` for every run in a session and an empty folder of its own, without this process's
environment; limits on time, memory, disk, files, processes and output; SIGKILL at the end. Where the kernel permits,
access to the network, to files outside the folder and to other processes is removed (`isolation`). Leaves out:
protection against a program that attacks the kernel, reads files that its user may read, or looks for the test runner
in its own process: it guards against accidents and common reward hacking of a policy, not against malware. For that
use a virtual machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("program_child.py")
OUTPUT = 1 << 20  #: bytes of output, above which a run is ended
DISK = 16 << 20  #: bytes of all files together, and of one
OPEN_FILES = 64
PROCESSES = 16  #: with threads
_POLL = 0.02  #: seconds between looks at whether it still runs


@dataclass(frozen=True)
class ProgramRun:
    """How a run ended: `reason` is "exit", "timeout" or "output"."""

    reason: str
    status: int  #: exit status; 128 and more: by a signal
    stdout: str
    stderr: str
    isolated: tuple[str, ...] = ()  #: of "network", "processes", "files", "user"


class SandboxError(RuntimeError):
    """The sandbox itself failed: there is no verdict."""


@dataclass(frozen=True)
class ProgramTests:
    passed: bool
    detail: str
    isolated: tuple[str, ...]


def run_program(code: str, stdin: str, *, seconds: float, memory: int) -> ProgramRun:
    """Run `code` as a script that reads `stdin`. `memory`: bytes of address space of each of its processes."""
    return _run(code, "program", stdin, seconds, memory, lambda message: None)


def run_tests(code: str, tests: Sequence[str], entry_point: str, *, seconds: float, memory: int) -> ProgramTests:
    """Run `code`, then each of `tests` in its namespace, then `check(entry_point)` where they define `check`.

    Passed only where the process proves that it came to the end of the tests, by a token that it gets there.
    """
    token = secrets.token_hex(16)
    messages: list[dict[str, Any]] = []

    def answer(message: dict[str, Any]) -> dict[str, Any] | None:
        if len(messages) > 9:  # the child sends three messages; a program that sends more is not the child
            return None
        messages.append(message)
        if "loaded" in message and len([m for m in messages if "loaded" in m]) == 1:
            return {"tests": list(tests), "entry_point": entry_point}
        if "tested" in message and any("loaded" in m for m in messages):
            return {"token": token}
        return None

    ended = _run(code, "tests", "", seconds, memory, answer)
    if messages and messages[-1].get("token") == token:
        return ProgramTests(True, "all tests pass", ended.isolated)
    failed = next((m for m in messages if "failed" in m), None)
    if failed is not None:
        return ProgramTests(False, f"{failed['failed']}: {failed.get('error')}", ended.isolated)
    if ended.reason == "exit":
        return ProgramTests(False, f"ended before its tests did, {_status_text(ended.status)}", ended.isolated)
    return ProgramTests(False, explain(ended, seconds), ended.isolated)


def isolation() -> tuple[str, ...]:
    """What this machine's kernel can isolate a run from: of "network", "processes", "files", "user"."""
    return run_program("", "", seconds=20, memory=1 << 30).isolated


def explain(ended: ProgramRun, seconds: float) -> str:
    """Why a run did not exit with status 0."""
    if ended.reason == "timeout":
        return f"not done within {seconds:g} s"
    if ended.reason == "output":
        return f"more than {OUTPUT} bytes of output"
    last = ended.stderr.strip().rpartition("\n")[2][:200]
    return f"{_status_text(ended.status)}{': ' + last if last else ''}"


def _status_text(status: int) -> str:
    if status > 128 and status - 128 in set(signal.Signals):
        return f"killed by {signal.Signals(status - 128).name}"
    return f"exit status {status}"


def _run(
    code: str,
    mode: str,
    stdin: str,
    seconds: float,
    memory: int,
    answer: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> ProgramRun:
    folder = tempfile.mkdtemp(prefix="assay-sandbox-")
    ours, theirs = socket.socketpair()
    try:
        with tempfile.TemporaryFile() as stdin_file, ours, theirs:
            stdin_file.write(stdin.encode("utf-8", "replace"))
            stdin_file.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-I", str(CHILD), str(theirs.fileno())],
                stdin=stdin_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=_environment(folder),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            theirs.close()
            job = {
                "code": code,
                "modes": [mode],
                "folder": folder,
                "disk": DISK,
                "cpu": int(seconds) + 1,
                "memory": memory,
                "files": OPEN_FILES,
                "processes": PROCESSES,
            }
            with process:
                try:
                    seen = _watched(process, ours, job, time.monotonic() + seconds, answer)
                finally:  # before it is waited for, while the group's number is certainly its own
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
            status = process.returncode
            out, err = (bytes(seen.read[name][:OUTPUT]).decode("utf-8", "replace") for name in ("out", "err"))
            if seen.isolated is None:
                detail = err.strip().rpartition("\n")[2][:200]
                raise SandboxError(f"the sandbox did not start the program ({seen.reason}): {detail}")
            return ProgramRun(seen.reason, 128 - status if status < 0 else status, out, err, seen.isolated)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: str) -> dict[str, str]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", **single}


@dataclass
class _Seen:
    reason: str
    read: dict[str, bytearray]
    isolated: tuple[str, ...] | None = None  #: None before the program may start


def _watched(
    process: subprocess.Popen[bytes],
    control: socket.socket,
    job: dict[str, Any],
    deadline: float,
    answer: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> _Seen:
    """Send the job and read what comes, until the process has ended (and is not waited for) or has to be ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    seen = _Seen("exit", {"out": bytearray(), "err": bytearray(), "control": bytearray()})
    with selectors.DefaultSelector() as selector:
        for name, file in (("out", process.stdout), ("err", process.stderr), ("control", control)):
            selector.register(file, selectors.EVENT_READ, name)
        _sent(control, job, deadline)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                seen.reason = "timeout"
                return seen
            gone = _has_ended(process)
            if not selector.get_map():
                if gone:
                    return seen
                time.sleep(min(remaining, _POLL / 10))
                continue
            ready = selector.select(0 if gone else min(remaining, _POLL))
            if gone and not ready:  # child processes may still hold the pipes
                return seen
            for key, _ in ready:
                data = _read_available(key.fd)
                if not data:
                    selector.unregister(key.fileobj)
                seen.read[key.data] += data
            _answered(seen, control, deadline, answer)
            if max(map(len, seen.read.values())) > OUTPUT:
                seen.reason = "output"
                return seen


def _answered(
    seen: _Seen,
    control: socket.socket,
    deadline: float,
    answer: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> None:
    """Take in the whole lines that have come over the control socket."""
    while b"\n" in seen.read["control"]:
        line, _, remainder = bytes(seen.read["control"]).partition(b"\n")
        seen.read["control"] = bytearray(remainder)
        message = _message(line)
        if "isolated" in message and seen.isolated is None:
            seen.isolated = tuple(map(str, message["isolated"]))
        if (reply := answer(message)) is not None:
            _sent(control, reply, deadline)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read_available(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except ConnectionResetError:
        return b""


def _sent(control: socket.socket, message: dict[str, Any], deadline: float) -> None:
    control.settimeout(max(0.01, deadline - time.monotonic()))
    with contextlib.suppress(OSError):  # it has ended, which the caller sees, or does not read
        control.sendall(json.dumps(message).encode() + b"\n")


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
