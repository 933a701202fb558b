"""The process that holds the program under test, and answers calls of its tests.

Covers: running the program, then serving the names that it defines. Leaves out: the tests, of which this process sees
nothing but the arguments of calls (`tests_process`). Standard library only.
"""

import contextlib
import io
import sys
from typing import Any

from assay_serving.verifiers.sandbox.peer import GoneError, Peer, perform_on_object


class ProgramSide(Peer):
    """Names of the program and operations on its objects."""

    trusts = True

    def __init__(self, connection: int) -> None:
        super().__init__(connection)
        self.namespace: dict[str, Any] = {"__name__": "solution"}

    def perform(self, operation: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation == "run":
            code = self.namespace.pop("", "")
            exec(compile(code, "solution.py", "exec", dont_inherit=True), self.namespace)
            return None
        if operation == "names":
            return sorted(name for name in self.namespace if not name.startswith("__"))
        if operation == "name":
            return self.namespace[args[0]]
        if operation == "await":
            import asyncio  # takes long, and is rarely needed

            return asyncio.run(target)
        return perform_on_object(operation, target, args, kwargs)


class _Tee(io.TextIOBase):
    """Standard output that also goes to the tests, which may look at what is printed."""

    def __init__(self, out: Any, copy: io.StringIO) -> None:
        self._out, self._copy = out, copy

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._copy.write(text)
        return int(self._out.write(text))

    def flush(self) -> None:
        self._out.flush()


def serve_program(code: str, connection: int) -> None:
    """Run `code` when the tests ask for it, then answer their calls until they end."""
    side = ProgramSide(connection)
    side.namespace[""] = code
    side.captured = io.StringIO()
    sys.stdout = _Tee(sys.stdout, side.captured)
    with contextlib.suppress(GoneError):
        side.serve()
