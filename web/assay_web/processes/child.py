"""The process of a job: `python -m assay_web.processes.child FOLDER ARGUMENTS...` runs `assay ARGUMENTS...`.

Covers: noting the process, for a web server that is killed before it can; Ctrl-C even if the web server runs in the
background, where children ignore it; output that outlasts a full disk; the exit status and the command's one-line
error, written over a file that has its room already. Leaves out: what the command does.
"""

import io
import json
import os
import signal
import sys
import time
from pathlib import Path

from assay.runs.process import note_process

EXIT_FILE = "exit.json"
ROOM = 4096  #: bytes of that file, taken before the job begins: on a full disk its outcome can still be written
KIND = "job"
_TAIL = 2000


def reserve(folder: Path) -> None:
    """Take the room of the exit file."""
    (folder / EXIT_FILE).write_bytes(b" " * ROOM)


class SteadyOutput(io.FileIO):
    """Standard output and error in the job's file. What a full disk does not take is lost; the work goes on."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.tail = b""

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        self.tail = (self.tail + bytes(data))[-_TAIL:]
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)

    @property
    def error(self) -> str:
        """The command's last line, which says what went wrong."""
        lines = [line for line in self.tail.decode("utf-8", "replace").splitlines() if line.strip()]
        return next((line for line in reversed(lines) if line.startswith("assay: ")), lines[-1] if lines else "")


def run(folder: Path, arguments: list[str]) -> None:
    """Does not return."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    output = SteadyOutput(1)
    stream = io.TextIOWrapper(output, encoding="utf-8", errors="replace", line_buffering=True, write_through=True)
    sys.stdout = sys.stderr = stream
    code = 1
    try:
        from assay.cli.main import main
        from assay.system.gc_threshold import collect_less

        collect_less()
        main(arguments)  # which then raises, where the command alone would end the process
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    except KeyboardInterrupt:  # before the command could take it
        code = 130
    except BaseException as error:
        output.tail += f"\nassay: {type(error).__name__}: {error}".encode()
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # nothing is left to interrupt
            signal.signal(number, signal.SIG_IGN)
        message = output.error.removeprefix("assay: ") if code not in (0, 130) else ""
        note = json.dumps({"code": code, "at": time.time(), "error": message[:1000]}).encode()
        with (folder / EXIT_FILE).open("r+b") as file:
            file.write(note.ljust(ROOM)[:ROOM])
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    note_process(Path(sys.argv[1]), KIND, time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()))
    run(Path(sys.argv[1]), sys.argv[2:])
