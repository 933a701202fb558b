"""Programs of unknown origin: limits that end them, ways of cheating that do not pass, nothing left behind."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from assay_serving.verifiers import PythonTests
from assay_serving.verifiers.sandbox.program_runner import OUTPUT, SandboxError, containment, run_program, run_tests

TEST = "assert f(2) == 4"
MEMORY = 512 << 20


def failed(code: str, seconds: float = 60) -> str:
    """The detail of a run that has to fail."""
    found = run_tests(code, [TEST], "", seconds=seconds, memory=MEMORY)
    assert not found.passed
    return found.detail


def require(part: str) -> None:
    if part not in containment():
        pytest.skip(f"the kernel does not let a process be cut off: {part}")


def test_right_and_wrong_programs() -> None:
    assert run_tests("def f(x): return x * x", [TEST], "", seconds=60, memory=MEMORY).passed
    assert failed("def f(x): return x").startswith("test 1: AssertionError")
    assert failed("def f(x) return x").startswith("the program: SyntaxError")


def test_humaneval_form() -> None:
    check = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9"
    right = PythonTests((check,), entry_point="f", prelude="import math")
    assert right.check("Sure:\n```python\ndef f(x):\n    return math.prod([x, x])\n```").passed
    assert not right.check("```python\ndef f(x):\n    return 4\n```").passed
    assert "NameError" in right.check("```python\ndef g(x):\n    return 4\n```").detail


@pytest.mark.slow
def test_input_and_output() -> None:
    squares = PythonTests(cases=(("3\n", "9"), ("4\n", "16\n")))
    assert squares.check("```python\nif __name__ == '__main__':\n    print(int(input()) ** 2, ' ')\n```").passed
    assert "case 2: wrote" in squares.check("print(9)").detail
    assert "ZeroDivisionError" in squares.check("print(1 / 0)").detail
    slow = PythonTests(cases=(("", "1"),) * 9, seconds=1)
    assert "not done within 1 s" in slow.check("import time\ntime.sleep(0.4)\nprint(1)").detail
    assert "exit status 3" in squares.check("print(int(input()) ** 2); raise SystemExit(3)").detail


@pytest.mark.parametrize(
    ("cheat", "told"),
    [
        ("import os\nos._exit(0)", "ended before its tests did"),
        ("import os\ndef f(x): os._exit(0)", "ended before its tests did"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import sys\ndef f(x): sys.exit(0)", "SystemExit"),
        ("import builtins\nbuiltins.AssertionError = int\ndef f(x): return 5", "test 1"),
        ("import builtins\nbuiltins.exec = builtins.compile = lambda *a, **k: 'pass'\ndef f(x): return 5", "test 1"),
        ("import os\ndef f(x): os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import atexit\natexit.register(print, 'passed')\nprint('{\"token\": \"x\"}')\ndef f(x): return 5", "test 1"),
        (
            "import json\njson.dumps = lambda *a: 'x'\njson.loads = lambda *a: {'tests': []}\ndef f(x): return 5",
            "test 1",
        ),
    ],
)
def test_cheating_does_not_pass(cheat: str, told: str) -> None:
    assert told in failed(cheat)


@pytest.mark.parametrize(
    "code", ["while True: pass", "import time\ntime.sleep(1000)", "input()\nimport time\ntime.sleep(9)"]
)
def test_programs_that_do_not_end(code: str) -> None:
    told = failed(code, seconds=0.8)
    assert "not done within 0.8 s" in told or "EOFError" in told


def test_a_fork_bomb_is_bounded_and_nothing_of_it_stays() -> None:
    """Every child sleeps, in a session of its own; more than the limit cannot be made."""
    mark = f"assay-bomb-{os.getpid()}"
    code = f"""
import os, sys, time
made = 0
try:
    for _ in range(40):
        if os.fork() == 0:
            os.setsid()
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600) # {mark}"])
        made += 1
except OSError:
    pass
def f(x): raise ValueError(made)
"""
    isolated = containment()
    told = failed(code)
    made = int(told.rpartition(" ")[2])
    if "privileges" in isolated:
        assert made < 16
    if "processes" in isolated:
        deadline = time.monotonic() + 60
        while left := [p for p in Path("/proc").glob("[0-9]*") if mark in _command(p)]:
            assert time.monotonic() < deadline, left


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_memory_output_and_disk_are_limited() -> None:
    assert "MemoryError" in failed("x = bytearray(1 << 31)")
    assert "bytes of output" in failed("while True: print('x' * 10000)")
    assert "File too large" in failed("open('big', 'wb').write(b'x' * (1 << 26))")
    assert "Too many open files" in failed("kept = [open(f'{n}', 'w') for n in range(100)]")
    many = run_program("print('x' * 100)\n" * 10, "", seconds=60, memory=MEMORY)
    assert (many.status, len(many.stdout)) == (0, 1010)
    assert len(run_program("while True: print('x' * 10000)", "", seconds=60, memory=MEMORY).stdout) <= OUTPUT


def test_the_environment_and_the_folder_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hidden")
    code = "import os\nprint(sorted(os.environ), os.listdir(), os.getcwd())\nopen('mine', 'w').write('x')"
    ended = run_program(code, "", seconds=60, memory=MEMORY)
    assert ended.status == 0, ended.stderr
    assert "SECRET_KEY" not in ended.stdout
    assert " [] " in ended.stdout
    assert not Path(ended.stdout.split()[-1]).exists()


def test_writing_outside_is_refused() -> None:
    require("files")
    assert "Read-only file system" in failed("open('/usr/outside', 'w')")
    target = Path(tempfile.gettempdir()) / f"assay-outside-{os.getpid()}"
    run_program(f"open({str(target)!r}, 'w')", "", seconds=60, memory=MEMORY)
    assert not target.exists()


def test_there_is_no_network() -> None:
    require("network")
    assert "unreachable" in failed("import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=5)")


def test_other_processes_are_out_of_reach() -> None:
    require("processes")
    assert "ProcessLookupError" in failed(f"import os\nos.kill({os.getpid()}, 0)")


def test_a_sandbox_that_cannot_start_gives_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "child.py"
    broken.write_text("raise SystemExit('no such right')", encoding="utf-8")
    monkeypatch.setattr("assay_serving.verifiers.sandbox.program_runner.CHILD", broken)
    with pytest.raises(SandboxError, match="no such right"):
        run_tests("def f(x): return 4", [TEST], "", seconds=60, memory=MEMORY)
