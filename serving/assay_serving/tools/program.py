"""The tool `python`: a program run in the sandbox of the verifiers, and what it writes.

Covers: the limits of a run, its output and the end of its error output as the result. Leaves out: containment
(`assay_serving.verifiers.sandbox`), state between calls: every program starts anew.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Le

from assay.errors import BackendError
from assay.settings import check_settings
from assay_serving.tools.tool import ToolError, ToolLimits
from assay_serving.verifiers.sandbox.program_runner import SandboxError, explain, run_program

STARTING = 65.0  #: seconds beyond the program's own, for starting it on a busy machine
#: Programs of this process at one time: the calls of many conversations come together.
AT_ONCE = threading.BoundedSemaphore(4 * (os.cpu_count() or 1))


@dataclass(frozen=True)
class PythonProgram:
    """`seconds`, `memory` (MiB of address space) of a program."""

    name: ClassVar[str] = "python"
    description: ClassVar[str] = "Runs a Python program without network and files, and returns what it prints."
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string"}, "stdin": {"type": "string"}},
        "required": ["code"],
    }

    seconds: Annotated[float, Gt(0), Le(120)] = 5.0
    memory: Annotated[int, Gt(0), Le(65536)] = 1024

    def __post_init__(self) -> None:
        """Raises BackendError where this machine cannot contain a program: answers without it are another judge's."""
        check_settings(self, "tools.python.")
        try:
            run_program("", "", seconds=self.seconds, memory=self.memory << 20)
        except SandboxError as error:
            raise BackendError(f"the tool python: {error}") from error

    @property
    def limits(self) -> ToolLimits:
        return ToolLimits(seconds=self.seconds + STARTING)

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Raises ToolError where the program fails, or the machine cannot contain it."""
        try:
            with AT_ONCE:
                ended = run_program(
                    arguments["code"], arguments.get("stdin", ""), seconds=self.seconds, memory=self.memory << 20
                )
        except SandboxError as error:
            raise ToolError(str(error)) from error
        if ended.reason != "exit" or ended.status != 0:
            written = f"\n{ended.stdout[-1000:]}" if ended.stdout else ""
            raise ToolError(explain(ended, self.seconds) + written)
        return ended.stdout or "(the program wrote nothing)"
