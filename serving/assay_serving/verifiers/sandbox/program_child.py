"""The process that runs an untrusted program: started by `program_runner` as `python -I`, standard library only.

Covers: isolation as far as the kernel permits (network, writing outside its folder, other processes, privileges), hard
limits, running the program, then its tests. The program runs first; the tests come over the control
socket when it has ended, and the token that proves their end comes when they have passed, so it is in this process at
no time at which the program's code runs, unless that code reads the socket itself. Leaves out: the time limit and
the verdict (`program_runner`).

Control socket (its number is the one argument), one JSON object a line: a job comes in; out go `isolated`, then
`loaded`, `failed` or, after the tests, `tested`, and at last the token.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from typing import Any, NoReturn

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_REC_PRIVATE = 0x4000 | 0x40000
_NOSUID_NODEV = 2 | 4
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _RDONLY = 442, -100, 0x8000, 1
_PDEATHSIG, _KEEPCAPS, _NO_NEW_PRIVS = 1, 8, 38
_DAC_READ_SEARCH = 1 << 2
_CAPABILITY_VERSION = 0x20080522
_FIRST_UID = 2_000_000_000  #: of users that exist nowhere: one a run, when started by root

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    with os.fdopen(int(sys.argv[1]), "r+b", buffering=0) as control:
        sys.argv[:] = ["solution.py"]
        job = json.loads(_line(control))
        isolated = _isolate(job["folder"], job["disk"])
        _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after every change of rights, which clears it
        _in_child()  # a new PID namespace begins with a child, and ends with it
        if "processes" in isolated and "files" in isolated and _libc.mount(b"proc", b"/proc", b"proc", 14, None) != 0:
            _libc.mount(b"tmpfs", b"/proc", b"tmpfs", 14, None)
        _in_child()  # for the first process of a namespace signals are not what they are for others
        _restrict(job, isolated)
        control.write(json.dumps({"isolated": isolated}).encode() + b"\n")
        if "tests" in job["modes"]:
            _run_with_tests(job["code"], control)
        _run_as_program(job["code"])


def _in_child() -> None:
    """Continue in a child that dies with this process; this one waits and exits with the child's status."""
    child = os.fork()
    if child == 0:
        _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _line(control: Any) -> bytes:
    read = b""
    while not read.endswith(b"\n"):
        more = control.read(65536)
        if not more:
            os._exit(1)
        read += more
    return read


def _isolate(folder: str, disk: int) -> list[str]:
    """Isolate from network, other processes and file system, each where the kernel permits; returns which."""
    owner, group = os.getuid(), os.getgid()
    done: list[str] = []
    if owner != 0:
        if _libc.unshare(_NEWUSER) != 0:
            return done
        for name, text in (("setgroups", "deny"), ("uid_map", f"{owner} {owner} 1"), ("gid_map", f"{group} {group} 1")):
            try:
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
            except OSError:
                return done
    for name, flag in (("network", _NEWNET), ("processes", _NEWPID | _NEWIPC)):
        if _libc.unshare(flag) == 0:
            done.append(name)
    if _libc.unshare(_NEWNS) == 0 and _libc.mount(b"none", b"/", None, _REC_PRIVATE, None) == 0:
        attributes = (ctypes.c_uint64 * 4)(_RDONLY, 0, 0, 0)
        read_only = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, 32) == 0
        options = f"size={disk},mode=777".encode()
        if _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", _NOSUID_NODEV, options) == 0:
            os.chdir(folder)
            if read_only:
                done.append("files")
    return done


def _restrict(job: dict[str, Any], isolated: list[str]) -> None:
    """Limits, and no privileges."""
    capabilities = 0
    if os.getuid() == 0:
        user = _FIRST_UID + int.from_bytes(os.urandom(3), "big")
        if not _readable(os.__file__) or not _readable(sys.prefix):
            capabilities = _DAC_READ_SEARCH  # else it could not import the standard library
        _libc.prctl(_KEEPCAPS, 1, 0, 0, 0)
        try:
            if "files" not in isolated:
                os.chown(job["folder"], user, user)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            isolated.append("user")
        except OSError:  # a root without root's rights, in some containers
            pass
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _libc.capset(header, (ctypes.c_uint32 * 6)(capabilities, capabilities, 0, 0, 0, 0))
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for limit, value in (
        (resource.RLIMIT_CPU, job["cpu"]),
        (resource.RLIMIT_AS, job["memory"]),
        (resource.RLIMIT_FSIZE, job["disk"]),
        (resource.RLIMIT_NOFILE, job["files"]),
        (resource.RLIMIT_NPROC, job["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(limit)
        allowed = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (allowed, allowed))


def _readable(path: str) -> bool:
    """Whether a user of no group can read the file and pass every folder on the way."""
    path = os.path.realpath(path)
    while True:
        if os.stat(path).st_mode & 0o005 != 0o005 and os.path.isdir(path):
            return False
        if path == os.path.dirname(path):
            return True
        path = os.path.dirname(path)


def _run_as_program(code: str) -> NoReturn:
    status = 0
    try:
        exec(compile(code, "solution.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        sys.stdout.flush()
    finally:
        os._exit(status & 0xFF)


def _run_with_tests(code: str, control: Any) -> NoReturn:
    run, translate, say, leave, untraced = exec, compile, json.dumps, os._exit, (sys.settrace, sys.setprofile)
    write, read, line = control.write, json.loads, _line
    space: dict[str, Any] = {"__name__": "solution"}
    at = "the program"
    try:
        run(translate(code, "solution.py", "exec", dont_inherit=True), space)
        write(b'{"loaded": true}\n')
        job = read(line(control))
        for turn_off in untraced:
            turn_off(None)
        for number, test in enumerate(job["tests"], 1):
            at = f"test {number}"
            run(translate(test, f"test_{number}.py", "exec", dont_inherit=True), space)
        if job["entry_point"] and "check" in space:
            at = "check"
            run(translate(f"check({job['entry_point']})", "check.py", "exec", dont_inherit=True), space)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"[:300] if not isinstance(error, MemoryError) else "MemoryError"
        write(say({"failed": at, "error": text}).encode() + b"\n")
        leave(1)
    write(b'{"tested": true}\n')
    write(line(control))
    leave(0)


if __name__ == "__main__":
    main()
