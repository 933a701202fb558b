"""Contains the calling process and its children: what they can see, reach and do on the machine.

Covers two methods. Namespaces: a root of its own with nothing but the interpreter and one folder (`pivot_root`), no
network, its own process ids. Landlock, where there is no namespace: the same files by rules, no sockets by a system
call filter. Both: no capability, a user of its own when started by root, hard limits. Leaves out: attacks on the
kernel, for which a virtual machine is needed. Standard library only, Linux only: `program_child` loads it by path, for
each run, so that it imports little.

Sources: the manual pages namespaces(7), user_namespaces(7), pivot_root(2), landlock(7), seccomp(2), capabilities(7).
"""

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NEEDED = ("files", "network", "processes", "privileges")  #: without one of these a program is not contained
NAMESPACES, USER_NAMESPACE, LANDLOCK = "namespaces", "user-namespace", "landlock"

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (1 << n for n in (17, 26, 27, 28, 29, 30))
_PRIVATE, _BIND, _TMPFS_FLAGS = 0x4000 | 0x40000, 0x1000 | 0x4000, 2 | 4
_MOUNT_SETATTR, _PIVOT_ROOT = 442, {"x86_64": 155, "aarch64": 41}
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY, _ATTR_NOSUID, _DETACH = -100, 0x8000, 1, 2, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_ALL, _READ_FILE, _USE_DEVICE = 0b1101, 0b0101, 0b0110  # Landlock's rights: execute, write, read, list
_PDEATHSIG, _KEEPCAPS, _SECCOMP, _NO_NEW_PRIVS = 1, 8, 22, 38
_CAPABILITY_VERSION = 0x20080522
_FIRST_UID = 2_000_000_000  #: of users that exist nowhere: one for each run, when started by root
_DEVICES = ("null", "zero", "random", "urandom")
_HOST = b"sandbox"  #: name of the machine, in a namespace of its own
FOLDER = "/sandbox"  #: of the program, in a root of its own

#: System calls that only attacks need: kernel interfaces, other processes' memory, new namespaces and mounts.
_REFUSED = {
    "x86_64": (101, 155, 161, 165, 166, 246, 248, 249, 250, 272, 298, 304, 308, 310, 311, 321, 323, 425, 426, 427),
    "aarch64": (40, 39, 41, 51, 97, 104, 117, 217, 218, 219, 241, 265, 268, 270, 271, 280, 282, 425, 426, 427),
}
#: Those that change the owner, rights, times or attributes of files, which Landlock does not rule.
_METADATA = {
    "x86_64": (90, 92, 94, 188, 189, 197, 198, 235, 260, 261, 268, 280, 452),
    "aarch64": (5, 6, 14, 15, 53, 54, 88, 452),
}
_MACHINE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Those that act on any process of the same user or leave the process group that is killed in the end: for Landlock,
#: which has no process ids of its own. The second ones take a process as their first argument, 0 for the caller.
_PROCESSES = {"x86_64": (109, 112, 141, 251, 256, 279), "aarch64": (30, 140, 154, 157, 238, 239)}
_OF_PROCESS = {"x86_64": (142, 144, 203, 302, 314), "aarch64": (118, 119, 122, 261, 274)}
#: Signals, and the orders of fcntl and ioctl to send them: before version 6 Landlock does not rule them.
_KILLS = {"x86_64": (62, 129, 200, 234, 297, 424), "aarch64": (129, 130, 131, 138, 240, 424)}
_SIGNAL_ORDERS = {"x86_64": {72: (8, 10, 15), 16: (0x8901, 0x8902)}, "aarch64": {25: (8, 10, 15), 29: (0x8901, 0x8902)}}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_UNSHARE = {"x86_64": 272, "aarch64": 97}
_CLONE, _CLONE3, _EPERM, _ENOSYS = {"x86_64": 56, "aarch64": 220}, 435, 1, 38

_libc = ctypes.CDLL(None, use_errno=True)


class Limits(NamedTuple):
    """`cpu` seconds, `memory` and `disk` bytes, open `files`, `processes` with threads (all of a run together)."""

    cpu: int
    memory: int
    disk: int
    files: int
    processes: int


def contain(method: str, folder: str, readable: Sequence[str], limits: Limits) -> list[str]:
    """Contain this process by `method`, or by the first that works for ""; returns what is contained, of `NEEDED`.

    `folder`: an empty folder, which the program gets as its own; `readable`: folders and files of the interpreter.
    Changes the working folder. Returns in a child of the process that called.
    """
    done: list[str] = []
    if method != LANDLOCK and _new_namespaces(method):
        done += ["network", "processes"]
        _libc.sethostname(_HOST, len(_HOST))
        if _new_root(folder, readable, limits.disk):
            done.append("files")
            os.environ.update(HOME=FOLDER, TMPDIR=FOLDER)
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    continue_in_child()  # a new PID namespace begins with a child, and ends with it
    continue_in_child()  # for the first process of a namespace signals are not what they are for others
    owner = os.getuid()  # in a user namespace already another
    user = owner
    if owner == 0 and ("files" in done or _others_can_read(os.__file__)):
        user = _FIRST_UID + int.from_bytes(os.urandom(3), "big")
    if "files" not in done:
        os.chdir(folder)
        if user != owner:
            os.chown(folder, user, user)
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    ruled = "files" not in done and _landlock(folder, readable)
    if ruled:
        done.append("files")
    if _drop_privileges(owner, user):
        done.append("privileges")
    _limit(limits)
    refused = [*_REFUSED.get(machine := os.uname().machine, ())]
    orders: dict[int, tuple[int, ...]] = {}
    if ruled:
        refused += [*_METADATA.get(machine, ()), *_PROCESSES.get(machine, ())]
    if ruled and ruled < 6:
        refused += _KILLS.get(machine, ())
        orders = _SIGNAL_ORDERS.get(machine, {})
    if "network" not in done:
        refused += [_SOCKET.get(machine, -1)]
    if _filter(refused, _OF_PROCESS.get(machine, ()) if ruled else (), orders) and ruled:
        done += [part for part in ("network", "processes") if part not in done]
    return done


def continue_in_child() -> None:
    """Continue in a child that dies with this process; this one waits and exits with the child's status."""
    child = os.fork()
    if child == 0:
        _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _new_namespaces(method: str) -> bool:
    spaces = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    owner, group = os.getuid(), os.getgid()
    if owner == 0 and method != USER_NAMESPACE and _libc.unshare(spaces) == 0:
        return True
    if _libc.unshare(_NEWUSER) != 0:
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_FIRST_UID} {owner} 1"),
        ("gid_map", f"{_FIRST_UID} {group} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError:
            return False
    return bool(_libc.unshare(spaces) == 0)


def _new_root(folder: str, readable: Sequence[str], disk: int) -> bool:
    """Make a root of `readable`, four devices and the empty folder `FOLDER`, and nothing else; False where refused."""
    old = os.umask(0o022)
    try:
        if _libc.mount(b"none", b"/", None, _PRIVATE, None) != 0 or not _tmpfs(folder, 1 << 20, 755):
            return False
        for path in readable:
            if not _bound(path, folder + path, _ATTR_RDONLY | _ATTR_NOSUID):
                return False
        for device in _DEVICES:
            _bound(f"/dev/{device}", f"{folder}/dev/{device}", 0)
        os.mkdir(folder + FOLDER)
        if not os.path.lexists(f"{folder}/tmp"):
            os.symlink(FOLDER, f"{folder}/tmp")
        if not _tmpfs(folder + FOLDER, disk, 777):
            return False
        os.chdir(folder)
        if _libc.syscall(_PIVOT_ROOT.get(os.uname().machine, -1), b".", b".") != 0:
            return False
        if _libc.umount2(b".", _DETACH) != 0:
            return False
        os.chdir("/")
        sealed = _attributes("/", _ATTR_RDONLY | _ATTR_NOSUID, 0)
        os.chdir(FOLDER)
        return sealed
    except OSError:
        return False
    finally:
        os.umask(old)


def _tmpfs(path: str, size: int, mode: int) -> bool:
    return bool(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", _TMPFS_FLAGS, f"size={size},mode={mode}".encode()) == 0)


def _bound(source: str, target: str, attributes: int) -> bool:
    """Show `source` at `target`; a link as a link, a path that does not exist not at all."""
    if os.path.lexists(target) or not os.path.lexists(source):
        return True
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return True
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    if _libc.mount(source.encode(), target.encode(), None, _BIND, None) != 0:
        return False
    return attributes == 0 or _attributes(target, attributes, _AT_RECURSIVE)


def _attributes(path: str, attributes: int, flags: int) -> bool:
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    return bool(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, wanted, 32) == 0)


def _landlock(folder: str, readable: Sequence[str]) -> int:
    """Allow only reading `readable` and everything in `folder`; the version of Landlock, 0 where there is none."""
    version = int(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1))
    if version < 1:
        return 0
    rights = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    ruleset = struct.pack("QQQ", rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = int(_libc.syscall(_LANDLOCK_CREATE, ruleset[:size], size, 0))
    if rules < 0:
        return 0
    allowed = [(path, _READ_ALL if os.path.isdir(path) else _READ_FILE) for path in readable if os.path.exists(path)]
    for path, access in [*allowed, (folder, rights), *((f"/dev/{device}", _USE_DEVICE) for device in _DEVICES)]:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        _libc.syscall(_LANDLOCK_ADD, rules, 1, struct.pack("=Qi", access, opened), 0)
        os.close(opened)
    restricted = _libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return version if restricted else 0


def _drop_privileges(owner: int, user: int) -> bool:
    """Become `user` and lose every capability; whether none is left."""
    if user != owner:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:  # a root without root's rights, in some containers
            return False
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    dropped = _libc.capset(header, (ctypes.c_uint32 * 6)(0, 0, 0, 0, 0, 0)) == 0
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # changes of rights clear it
    return bool(dropped) and user != 0


def _others_can_read(path: str) -> bool:
    """Whether a user of no group can read the file and pass every folder on the way."""
    path = os.path.realpath(path)
    while path != os.path.dirname(path):
        if not os.stat(path).st_mode & (0o001 if os.path.isdir(path) else 0o004):
            return False
        path = os.path.dirname(path)
    return True


def _limit(limits: Limits) -> None:
    for limit, value in (
        (resource.RLIMIT_CPU, limits.cpu),
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_FSIZE, limits.disk),
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(limit)
        allowed = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (allowed, allowed))


def _filter(
    refused: Sequence[int], of_process: Sequence[int] = (), orders: Mapping[int, Sequence[int]] | None = None
) -> bool:
    """Refuse system calls by number, those `of_process` for another process than the caller, those of `orders` with
    one of these second arguments, and new user namespaces."""
    machine = os.uname().machine
    if machine not in _MACHINE:
        return False
    load, jump, bits, answer = 0x20, 0x15, 0x45, 0x06
    allow, kill, deny, absent = 0x7FFF0000, 0x80000000, 0x00050000 | _EPERM, 0x00050000 | _ENOSYS
    program = [(load, 0, 0, 4), (jump, 1, 0, _MACHINE[machine]), (answer, 0, 0, kill), (load, 0, 0, 0)]
    if machine == "x86_64":  # the x32 numbers of the same calls
        program += [(0x35, 0, 1, 0x40000000), (answer, 0, 0, deny)]
    for number in refused:
        program += [(jump, 0, 1, number), (answer, 0, 0, deny)]
    for number in of_process:
        program += [(jump, 0, 3, number), (load, 0, 0, 16), (jump, 1, 0, 0), (answer, 0, 0, deny), (load, 0, 0, 0)]
    for number, values in (orders or {}).items():
        program += [(jump, 0, 2 * len(values) + 2, number), (load, 0, 0, 24)]
        for value in values:
            program += [(jump, 0, 1, value), (answer, 0, 0, deny)]
        program += [(load, 0, 0, 0)]
    program += [
        (jump, 0, 1, _CLONE3),
        (answer, 0, 0, absent),
    ]  # its flags cannot be read; C libraries use clone
    program += [(jump, 0, 3, _CLONE[machine]), (load, 0, 0, 16), (bits, 0, 1, _NEWUSER), (answer, 0, 0, deny)]
    program += [(answer, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    return bool(_libc.prctl(_SECCOMP, 2, header, 0, 0) == 0)
