"""The contained process that runs a program, or its tests: started by `program_runner` as `python -I`.

Covers: containment before anything untrusted runs, and a report of it. Leaves out: the time limit and the verdict
(`program_runner`). Standard library only; modules of this folder are loaded without the packages above them.

Control socket (its number is the first argument), one JSON object a line: a job comes in; out goes `contained`, or
`refused`. The process of a program then closes it; that of tests sends the verdict there. The second argument is the
number of the socket between the two.
"""

import json
import os
import sys
import types
from typing import Any, NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))
for _package, _levels in (("assay_serving", 2), ("assay_serving.verifiers", 1), ("assay_serving.verifiers.sandbox", 0)):
    _module = types.ModuleType(_package)
    _module.__dict__["__path__"] = [os.path.normpath(os.path.join(_HERE, *[os.pardir] * _levels))]
    sys.modules[_package] = _module


def main() -> NoReturn:
    from assay_serving.verifiers.sandbox.containment import NEEDED, Limits, contain

    control = os.fdopen(int(sys.argv[1]), "r+b", buffering=0)
    peer = int(sys.argv[2]) if len(sys.argv) > 2 else None
    job = json.loads(_line(control))
    sys.argv[:] = ["solution.py"]
    if job["role"] == "tests":  # none of the modules is visible once it is contained; each run imports its own
        from assay_serving.verifiers.sandbox.tests_process import run_tests
    elif peer is not None:
        from assay_serving.verifiers.sandbox.program_process import serve_program
    contained = contain(job["method"], job["folder"], job["readable"], Limits(**job["limits"]))
    missing = [part for part in NEEDED if part not in contained and part not in job["without"]]
    control.write(json.dumps({"refused": missing} if missing else {"contained": contained}).encode() + b"\n")
    if missing:
        os._exit(1)
    if job["role"] == "tests":
        assert peer is not None
        verdict = run_tests(job["tests"], job["entry_point"], job["prelude"], peer)
        control.write(json.dumps(verdict).encode() + b"\n")
        os._exit(0)
    control.close()
    if peer is not None:
        serve_program(job["code"], peer)
        _flush_and_exit(0)
    _run_as_script(job["code"])


def _line(control: Any) -> bytes:
    read = b""
    while not read.endswith(b"\n"):
        more = control.read(65536)
        if not more:
            os._exit(1)
        read += more
    return read


def _run_as_script(code: str) -> NoReturn:
    status = 0
    try:
        exec(compile(code, "solution.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        import traceback  # takes as long as all the others, and is rarely needed

        traceback.print_exc()
        status = 1
    _flush_and_exit(status)


def _flush_and_exit(status: int) -> NoReturn:
    try:
        sys.stdout.flush()
    finally:
        os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
