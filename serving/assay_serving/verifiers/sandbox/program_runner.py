"""Running an untrusted program in separate processes that can do no harm, with hard limits.

Covers: a fresh `python -I` for the program and another one for its tests, each contained (`containment`); limits on
time, memory, disk, files, processes and output; SIGKILL at the end; refusal where the machine cannot contain a program.
Leaves out: attacks on the kernel; for code written to harm use a virtual machine.
"""

import contextlib
import functools
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("program_child.py")
OUTPUT = 1 << 20  #: bytes of output, above which a run is ended
DISK = 16 << 20  #: bytes of all files together, and of one
OPEN_FILES = 64
PROCESSES = 16  #: with threads
WITHOUT = "ASSAY_PROGRAMS_WITHOUT"  #: environment variable: what an operator does without, such as "files,network"
START_SECONDS = 60.0  #: for starting and containing a process, on a machine that does much else
_POLL = 0.02  #: seconds between looks at whether it still runs


@dataclass(frozen=True)
class ProgramRun:
    """How a run ended: `reason` is "exit", "timeout" or "output"."""

    reason: str
    status: int  #: exit status; 128 and more: by a signal
    stdout: str
    stderr: str
    contained: tuple[str, ...] = ()  #: of "files", "network", "processes", "privileges"


class SandboxError(RuntimeError):
    """The sandbox itself failed: there is no verdict."""


class UncontainedError(SandboxError):
    """This machine cannot contain a program, which is therefore not run."""


@dataclass(frozen=True)
class ProgramTests:
    passed: bool
    detail: str


def run_program(code: str, stdin: str, *, seconds: float, memory: int, method: str = "") -> ProgramRun:
    """Run `code` as a script that reads `stdin`. `memory`: bytes of address space of each of its processes.

    `method` of `containment`: the first that works for "". Raises UncontainedError, SandboxError.
    """
    job = _job({"role": "program", "code": code}, seconds, memory, method)
    with _process(job, stdin) as process:
        reason = _watch([process], _started([process]) + seconds)
        process.kill()
    return process.result(reason)


def run_tests(
    code: str,
    tests: Sequence[str],
    entry_point: str,
    *,
    seconds: float,
    memory: int,
    prelude: str = "",
    method: str = "",
) -> ProgramTests:
    """Run `prelude` and `code`, then each of `tests`, then `check(entry_point)` where the tests define `check`.

    The tests run in another process than the code, with the prelude and the names that the code defines. The verdict
    comes from there. Raises UncontainedError, SandboxError.
    """
    program_end, tests_end = socket.socketpair()
    with program_end, tests_end:
        program_job = _job({"role": "program", "code": f"{prelude}\n{code}"}, seconds, memory, method)
        description = {"role": "tests", "tests": list(tests), "entry_point": entry_point, "prelude": prelude}
        tests_job = _job(description, seconds, memory, method)
        with _process(program_job, "", program_end) as program, _process(tests_job, "", tests_end) as judging:
            program_end.close()
            tests_end.close()
            deadline = _started([judging, program]) + seconds
            reason = _watch([judging, program], deadline)
            verdict = judging.verdict()
            if "gone" in verdict:
                reason = _watch([program], deadline)
            program.kill()
            judging.kill()
    ended = program.result(reason)
    judged = judging.result(reason)
    if verdict.get("passed") is True:
        return ProgramTests(True, "all tests pass")
    if "failed" in verdict:
        return ProgramTests(False, f"{verdict['failed']}: {verdict.get('error')}")
    if reason == "exit" and "gone" not in verdict:
        return ProgramTests(False, f"the tests ended with {explain(judged, seconds)}")
    if reason == "exit":
        return ProgramTests(False, f"ended before its tests did, {_status_text(ended.status)}")
    return ProgramTests(False, explain(ended, seconds))


def containment(method: str = "") -> tuple[str, ...]:
    """What this machine can contain a program by: of "files", "network", "processes", "privileges"."""
    job = _job({"role": "program", "code": ""}, 20, 1 << 30, method)
    job["without"] = ["files", "network", "processes", "privileges"]
    with _process(job, "") as process:
        _started([process])
        process.kill()
    return process.result("exit").contained


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


def _job(description: dict[str, Any], seconds: float, memory: int, method: str) -> dict[str, Any]:
    limits = {"cpu": int(seconds) + 1, "memory": memory, "disk": DISK, "files": OPEN_FILES, "processes": PROCESSES}
    without = [part.strip() for part in os.environ.get(WITHOUT, "").split(",") if part.strip()]
    return {**description, "limits": limits, "method": method, "readable": _interpreter(), "without": without}


@functools.cache
def _interpreter() -> list[str]:
    """Files and folders that Python needs, links before what they lead to."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    for prefix in {sys.prefix, sys.base_prefix} - {"/usr"}:
        paths += [f"{prefix}/{name}" for name in ("bin", "lib", "lib64", "pyvenv.cfg")]
    if "/usr" in (sys.prefix, sys.base_prefix):
        paths += [sys.executable, os.path.realpath(sys.executable), "/usr/lib/python3"]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for folder in ("/lib", "/lib64", "/usr/lib", "/usr/lib64"):
        if os.path.islink(folder):
            paths.append(folder)
        elif os.path.isdir(f"{folder}/{multiarch}") and multiarch:
            paths.append(f"{folder}/{multiarch}")
        elif folder.endswith("64") or not multiarch:
            paths.append(folder)
    paths += ["/etc/ld.so.cache", "/usr/share/zoneinfo", "/etc/localtime"]
    present = [path for path in dict.fromkeys(map(os.path.normpath, paths)) if os.path.lexists(path)]
    inner = [path for path in present if any(path.startswith(f"{other}/") for other in present)]
    return sorted((path for path in present if path not in inner), key=lambda path: (not os.path.islink(path), path))


@dataclass(eq=False)
class _Contained:
    """A process that was started with a job, and what it has written."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    read: dict[str, bytearray] = field(
        default_factory=lambda: {name: bytearray() for name in ("out", "err", "control")}
    )

    def messages(self) -> list[dict[str, Any]]:
        """Whole lines of the control socket. All are the child's own: a program has no access to it."""
        return [json.loads(line) for line in bytes(self.read["control"]).split(b"\n")[:-1]]

    def verdict(self) -> dict[str, Any]:
        sent = self.messages()
        return sent[1] if len(sent) > 1 else {}

    def ended(self) -> bool:
        if self.process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """End the process and its group, before it is waited for, while the number is certainly its own."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def result(self, reason: str) -> ProgramRun:
        out, err = (bytes(self.read[name][:OUTPUT]).decode("utf-8", "replace") for name in ("out", "err"))
        status = self.process.returncode
        sent = self.messages()
        if sent and "refused" in sent[0]:
            missing = ",".join(sent[0]["refused"])
            raise UncontainedError(
                f"this machine cannot contain a program ({missing}), so none is run; {WITHOUT}={missing} runs them "
                "without: they then reach what this user reaches"
            )
        if not sent:
            detail = err.strip().rpartition("\n")[2][:200]
            raise SandboxError(f"the sandbox did not start the program ({reason}): {detail}")
        contained = tuple(map(str, sent[0]["contained"]))
        return ProgramRun(reason, 128 - status if status < 0 else status, out, err, contained)


@contextlib.contextmanager
def _process(job: dict[str, Any], stdin: str, peer: socket.socket | None = None) -> Iterator[_Contained]:
    folder = tempfile.mkdtemp(prefix="assay-sandbox-")
    ours, theirs = socket.socketpair()
    sockets = (theirs.fileno(), *(() if peer is None else (peer.fileno(),)))
    try:
        with tempfile.TemporaryFile() as stdin_file, ours, theirs:
            stdin_file.write(stdin.encode("utf-8", "replace"))
            stdin_file.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-I", str(CHILD), *map(str, sockets)],
                stdin=stdin_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=_environment(folder),
                pass_fds=sockets,
                start_new_session=True,
            )
            theirs.close()
            started = _Contained(process, ours)
            with process:
                try:
                    ours.settimeout(job["limits"]["cpu"])
                    with contextlib.suppress(OSError):  # it has ended, which the caller sees, or does not read
                        ours.sendall(json.dumps({**job, "folder": folder}).encode() + b"\n")
                    yield started
                finally:
                    started.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: str) -> dict[str, str]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", **single}


def _started(processes: Sequence[_Contained]) -> float:
    """Wait until all are contained, have refused or have ended; the time of that. Their time limit begins then."""
    for one in processes:
        _watch([one, *processes], time.monotonic() + START_SECONDS, until_started=True)
    return time.monotonic()


def _watch(processes: Sequence[_Contained], deadline: float, *, until_started: bool = False) -> str:
    """Read what the processes write until the first of them has ended, or all have to be; returns the reason."""
    with selectors.DefaultSelector() as selector:
        for one in dict.fromkeys(processes):
            assert one.process.stdout is not None
            assert one.process.stderr is not None
            for name, file in (("out", one.process.stdout), ("err", one.process.stderr), ("control", one.control)):
                selector.register(file, selectors.EVENT_READ, (one, name))
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return "timeout"
            if until_started and processes[0].messages():
                return "started"
            gone = processes[0].ended()
            if not selector.get_map():
                if gone:
                    return "exit"
                time.sleep(min(remaining, _POLL / 10))
                continue
            ready = selector.select(0 if gone else min(remaining, _POLL))
            if gone and not ready:  # child processes may still hold the pipes
                return "exit"
            for key, _ in ready:
                one, name = key.data
                data = _read_available(key.fd)
                if not data:
                    selector.unregister(key.fileobj)
                one.read[name] += data
            if any(max(map(len, one.read.values())) > OUTPUT for one in processes):
                return "output"


def _read_available(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except ConnectionResetError:
        return b""
