"""Constraint that a response's Python code passes tests.

Covers: which code block counts, tests as statements (assert lines, or a `check` function with an entry point as in
HumanEval) and as input and output of a script. Leaves out: running it safely (`sandbox`).
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.errors import BackendError, BadInputError
from assay_serving.verifiers.constraint import Constraint, Verdict
from assay_serving.verifiers.sandbox.program_runner import UncontainedError, explain, run_program, run_tests

SECONDS = 5.0
MEMORY = 1024  #: MiB of address space
_BLOCK = re.compile(r"^```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("", "python", "py", "python3")


@dataclass(frozen=True)
class PythonTests(Constraint):
    """The response's code passes every one of `tests` and `cases`, all of them within `seconds`.

    `tests`: statements, run in another process with the names that the code defines. `entry_point`: a function of the
    code; where the tests define `check`, it is called with it. `cases`: (input, output) of the code run as a script;
    outputs are compared line by line without trailing white space. `prelude`: code that goes before the response's and
    before the tests, e.g. imports.
    """

    foreign: ClassVar[bool] = True
    tests: tuple[str, ...] = ()
    cases: tuple[tuple[str, str], ...] = ()
    entry_point: str = ""
    prelude: str = ""
    seconds: float = SECONDS
    memory: int = MEMORY

    def __post_init__(self) -> None:
        if not isinstance(self.tests, tuple) or not all(isinstance(t, str) and t.strip() for t in self.tests):
            raise BadInputError("must be a list of Python statements, each as text", field="tests")
        object.__setattr__(self, "cases", _pairs(self.cases))
        if not self.tests and not self.cases:
            raise BadInputError("gives neither tests nor cases", field="tests")
        for number, test in enumerate(self.tests, 1):
            try:
                compile(test, "test", "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise BadInputError(f"test {number} is not Python: {error}", field="tests") from error
        if not isinstance(self.entry_point, str) or (self.entry_point and not self.entry_point.isidentifier()):
            raise BadInputError(f"must be the name of a function, not {self.entry_point!r}", field="entry_point")
        if not isinstance(self.prelude, str):
            raise BadInputError("must be text", field="prelude")
        for name, value, most in (("seconds", self.seconds, 120), ("memory", self.memory, 65536)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                raise BadInputError(f"must be a number above 0 and up to {most}, not {value!r}", field=name)

    @property
    def run_seconds(self) -> float:
        return self.seconds

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "cases": [{"input": stdin, "output": stdout} for stdin, stdout in self.cases]}

    def judge(self, response: str) -> Verdict:
        try:
            return self._run(code_of(response, self.entry_point))
        except UncontainedError as error:
            raise BackendError(str(error)) from error

    def _run(self, code: str) -> Verdict:
        memory, deadline = int(self.memory * (1 << 20)), time.monotonic() + self.seconds
        if self.tests:
            tested = run_tests(
                code, self.tests, self.entry_point, prelude=self.prelude, seconds=self.seconds, memory=memory
            )
            if not tested.passed:
                return Verdict(False, tested.detail)
        for number, (stdin, expected) in enumerate(self.cases, 1):
            ended = run_program(
                f"{self.prelude}\n{code}", stdin, seconds=max(0.0, deadline - time.monotonic()), memory=memory
            )
            if ended.reason != "exit" or ended.status != 0:
                return Verdict(False, f"case {number}: {explain(ended, self.seconds)}")
            if _lines(ended.stdout) != _lines(expected):
                return Verdict(False, f"case {number}: wrote {ended.stdout[:60]!r}, not {expected[:60]!r}")
        return Verdict(True, f"passes {len(self.tests)} tests and {len(self.cases)} cases")


def code_of(response: str, entry_point: str = "") -> str:
    """The code of a response: its last Python block, of several the last that defines `entry_point`.

    A fence that is not closed goes to the end; a response without a fence is code as a whole.
    """
    blocks = [code for language, code in _BLOCK.findall(response) if language.lower() in _PYTHON]
    if not blocks:
        return response
    defining = [code for code in blocks if entry_point and re.search(rf"^def {entry_point}\b", code, re.MULTILINE)]
    return str((defining or blocks)[-1])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _pairs(cases: Any) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for case in cases if isinstance(cases, tuple) else (None,):
        if isinstance(case, Mapping) and case.keys() == {"input", "output"}:
            case = (case["input"], case["output"])
        if not isinstance(case, tuple) or len(case) != 2 or not all(isinstance(text, str) for text in case):
            raise BadInputError('must be a list of {"input": text, "output": text}', field="cases")
        pairs.append(case)
    return tuple(pairs)
