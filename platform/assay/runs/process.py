"""The process of a run: recorded in the run's folder, looked up and interrupted from other processes.

A process number alone is not enough: when its process is gone, the system gives it to another. Where the system tells
when a process began (Linux), that time and the boot are part of the record, and only what agrees with all of it is the
run's process. Leaves out: the run's record in the store (`assay.runs.record`), what the process does when asked
(`assay.system.graceful_stop`).
"""

import json
import os
import re
import signal
import socket
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import ConflictError
from assay.system.atomic_files import replacing

FILE = "process.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: What a process without anything of its own to say does at a signal is to die of it; these it must catch.
_ASKING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class RunProcess:
    """`birth`: tells this process from every other of its number, None where the system does not say. The rest is of
    the run: its `kind`, when it `started` and `ended` (ISO 8601), its `status` and `error` as in the store."""

    pid: int
    host: str
    birth: str | None
    kind: str
    started: str
    status: str = "running"
    error: str | None = None
    ended: str | None = None

    def is_alive(self) -> bool:
        """Whether the run is in progress on this machine; True where its process cannot be told from another of
        the same number. A process may execute other runs after this one."""
        if self.status != "running" or self.host != socket.gethostname():
            return False
        return is_alive(self.pid) and (self.birth is None or self.birth == birth_of(self.pid))

    def is_gone(self) -> bool:
        """Whether the process ended without recording it: the run is recorded as running and its process is gone.

        False for processes of other machines, whose state is unknown.
        """
        return self.status == "running" and self.host == socket.gethostname() and not self.is_alive()

    def interrupt(self) -> None:
        """Do what Ctrl-C does. Raises ConflictError when that is not possible, or when this may be another process."""
        if self.status != "running":
            raise ConflictError(f"the run has ended: {self.status}")
        if self.host != socket.gethostname():
            raise ConflictError(f"the run is on {self.host}, not on {socket.gethostname()}: end it there with Ctrl-C")
        if self.birth is None or not hasattr(os, "pidfd_open"):
            raise ConflictError(f"process {self.pid} cannot be told from others here: end it with Ctrl-C where it runs")
        try:
            handle = os.pidfd_open(self.pid)  # from here on this process, whatever becomes of the number
        except ProcessLookupError:
            raise ConflictError("the run's process is gone") from None
        except OSError as error:
            raise ConflictError(f"process {self.pid} cannot be reached: {error.strerror}") from error
        try:
            if not self.is_alive():
                raise ConflictError("the run's process is gone; another has its number")
            number = next((n for n in _ASKING if n in caught_signals(self.pid)), None)
            if number is None:
                raise ConflictError(f"process {self.pid} does not listen to Ctrl-C: it was started in the background")
            signal.pidfd_send_signal(handle, number)
        except PermissionError:
            raise ConflictError(f"process {self.pid} belongs to another user of this machine") from None
        except ProcessLookupError:
            raise ConflictError("the run's process is gone") from None
        finally:
            os.close(handle)


def note_process(folder: Path, kind: str, started: str, pid: int | None = None) -> None:
    """Write down that the process, this one unless told, does the run whose folder it is."""
    pid = os.getpid() if pid is None else pid
    _write(folder, RunProcess(pid, socket.gethostname(), birth_of(pid), kind, started))


def note_end(folder: Path, status: str, error: str | None) -> None:
    """Write down how the run ended: from now on it is not this process that is spoken of."""
    if (process := process_of(folder)) is not None:
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        _write(folder, replace(process, status=status, error=error, ended=ended))


def process_of(folder: Path) -> RunProcess | None:
    """None where nothing readable was written down."""
    try:
        return RunProcess(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def is_alive(pid: int | None) -> bool:
    """Whether a process of this number runs; one that has ended and waits for its parent does not."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    fields = _stat(pid)
    return not fields or fields[0] not in ("Z", "X")


def birth_of(pid: int) -> str | None:
    """Boot, space of process numbers and start in ticks since the boot; None where the system does not say."""
    fields = _stat(pid)
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink('/proc/self/ns/pid')} {fields[19]}"
    except (OSError, IndexError):
        return None


def caught_signals(pid: int) -> set[int]:
    """Signals for which the process has a handler (proc(5), SigCgt); empty where the system does not say."""
    try:
        mask = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return set()
    return {number for number in range(1, 65) if mask and int(mask[1], 16) >> (number - 1) & 1}


def _write(folder: Path, process: RunProcess) -> None:
    with replacing(folder / FILE) as temporary:
        temporary.write_text(json.dumps(asdict(process)) + "\n", encoding="utf-8")


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) stat from the state on; the name before it may hold anything, also brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
