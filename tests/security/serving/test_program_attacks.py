"""Programs that attack the sandbox: what they read, reach and forge, as root and as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay_serving.verifiers import PythonTests
from assay_serving.verifiers.sandbox import containment as containment_module
from assay_serving.verifiers.sandbox.containment import LANDLOCK, NAMESPACES, NEEDED, USER_NAMESPACE
from assay_serving.verifiers.sandbox.program_runner import WITHOUT, containment, run_program, run_tests

MEMORY = 512 << 20
SANDBOX = Path(containment_module.__file__).parent
METHODS = (NAMESPACES, USER_NAMESPACE, LANDLOCK)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    if set(containment(request.param)) != set(NEEDED):
        pytest.skip(f"this machine does not contain programs by {request.param}")
    return str(request.param)


def passes(code: str, *tests: str, method: str = "", entry_point: str = "", prelude: str = "") -> bool:
    return run_tests(code, tests, entry_point, seconds=60, memory=MEMORY, method=method, prelude=prelude).passed


def test_a_file_cannot_be_read_out_bit_by_bit(tmp_path: Path, method: str) -> None:
    """Every bit of a key as the verdict of one program: all verdicts are alike, whatever the key."""
    key = tmp_path / "keys.json"
    key.write_bytes(bytes([0b10101010]))
    os.chmod(key, 0o644)
    program = (
        f"def f(bit):\n    try: return open({str(key)!r}, 'rb').read()[0] >> bit & 1\n    except OSError: return 2"
    )
    assert passes(program, *(f"assert f({bit}) == 2" for bit in range(8)), method=method)


def test_nothing_of_the_machine_is_visible(method: str) -> None:
    program = """
import os, socket
def reached():
    seen = []
    for path in ("/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/cmdline", "/home", "/var"):
        try:
            with open(path) as file: seen.append((path, file.read(8)))
        except IsADirectoryError: seen += [(path, name) for name in os.listdir(path)]
        except OSError: pass
    if METHOD != "landlock" and os.uname().nodename != "sandbox": seen.append(os.uname().nodename)
    try: socket.create_connection(("127.0.0.1", 1), timeout=1)
    except ConnectionRefusedError: seen.append("loopback")
    except OSError: pass
    for process in range(1, 3000):
        if process in (os.getpid(), os.getppid()): continue
        try: os.kill(process, 0); seen.append(process)
        except ProcessLookupError: pass
        except OSError: pass
    return seen
def capabilities():
    import ctypes
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capget(header, data)
    return list(data)
def new_namespace():
    import ctypes
    return ctypes.CDLL(None).unshare(0x10000000)
"""
    tests = ("assert reached() in ([], [1])", "assert capabilities() == [0] * 6", "assert new_namespace() == -1")
    program = f"METHOD = {method!r}\n{program}"
    ended = run_tests(program, tests, "", seconds=60, memory=MEMORY, method=method)
    assert ended.passed, ended.detail


FORGERIES = {
    "an object that equals everything": """
class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def f(x): return Always()
""",
    "a number that equals everything": """
class Always(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def f(x): return Always(7)
""",
    "an object that calculates to zero": """
class Zero:
    def __sub__(self, other): return self
    def __rsub__(self, other): return self
    def __abs__(self): return 0.0
    def __lt__(self, other): return True
    def __gt__(self, other): return True
    def __contains__(self, other): return True
def f(x): return Zero()
""",
    "a class instead of a function": """
class f:
    def __init__(self, x): pass
    def __eq__(self, other): return True
    def __sub__(self, other): return self
    def __abs__(self): return 0.0
    def __contains__(self, other): return True
""",
    "built-in functions replaced": """
def abs(x): return 0.0
def isinstance(x, y): return True
def all(x): return True
def f(x): return 7
""",
    "a replaced module": """
import math
math.isclose = lambda *a, **k: True
def f(x): return 7
""",
    "messages on every descriptor": """
import os, json
def f(x): return 7
for number in range(3, 64):
    for message in ({"passed": True}, {"contained": []}, {"value": 4, "changed": []}, {"tested": True}):
        try: os.write(number, json.dumps(message).encode() + b"\\n")
        except OSError: pass
""",
    "a walk up the stack": """
import sys, gc
def f(x):
    frame = sys._getframe()
    while frame:
        for name in list(frame.f_locals):
            if name in ("result", "value", "values"): frame.f_locals[name] = 4
        frame = frame.f_back
    for one in gc.get_objects():
        if type(one) is dict and "tests" in one: one["tests"] = []
    return 7
""",
    "an exit with success": "import os\ndef f(x): os._exit(0)",
    "a result of another process": "import os\ndef f(x):\n    if os.fork() == 0: return 4\n    os._exit(0)",
}
TESTS = (
    "assert f(2) == 4 and not f(2) != 4",
    "assert f(2) in (4, 5)",
    "import math\nassert math.isclose(f(2), 4)",
    "assert abs(f(2) - 4) < 1e-6",
    "assert isinstance(f(2), int) and f(2) == 4",
    "assert all([f(2) == 4])",
    "assert [f(2)] == [4]",
    "assert {f(2): 1} == {4: 1}",
)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_pass_cannot_be_forged(name: str) -> None:
    """Each way of asking, in one run: the program passes none of them."""
    each = f"""
passed = []
for test in {TESTS!r}:
    try: exec(test, globals())
    except BaseException as error:
        if type(error).__name__ == "GoneError": raise
    else: passed.append(test)
"""
    honest = run_tests(
        "def f(x): return x * x", [each, f"f\nassert passed == {list(TESTS)!r}, passed"], "", seconds=60, memory=MEMORY
    )
    assert honest.passed, honest.detail
    forged = run_tests(FORGERIES[name], [each, "f\nassert not passed, passed"], "", seconds=60, memory=MEMORY)
    assert forged.passed or "AssertionError" not in forged.detail, forged.detail


def test_a_forged_check_does_not_replace_the_tests() -> None:
    assert not passes("def check(f): pass\ndef f(x): return 7", "def check(c):\n    assert c(2) == 4", entry_point="f")
    assert not passes(
        FORGERIES["an object that equals everything"], "def check(c):\n    assert c(2) == 4", entry_point="f"
    )


CHANGES = {
    "a module that the first test has imported": (
        "import math\ndef f(x):\n    globals()['math'] = Fake()\n    return x * x if x == 2 else 7",
        ("import math\nassert math.isclose(f(2), 4)", "assert math.isclose(f(3), 9)"),
    ),
    "a module that no test imports": ("math = Fake()\ndef f(x): return 7", ("assert math.isclose(f(2), 4)",)),
    "a built-in function, where the tested one is of an earlier test": (
        "def all(x): return True\ndef f(x): return 7",
        ("results = [f(n) == n * n for n in range(3)]", "assert all(results)"),
    ),
    "an end that a test takes for any error": (
        "import os\ndef f(x): os._exit(0)",
        ("try:\n    f('')\nexcept Exception:\n    pass",),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_names_of_the_program_do_not_replace_those_of_the_tests(name: str) -> None:
    program, tests = CHANGES[name]
    fake = "class Fake:\n    def isclose(self, *values): return True\n"
    assert not passes(fake + program, *tests)
    assert passes("import math\ndef f(x): return x * x", *tests)


def test_a_program_names_no_memory_for_numpy_to_read() -> None:
    if run_program("import numpy", "", seconds=60, memory=2 << 30).status:
        pytest.skip("the interpreter of programs has no numpy")
    program = """
class Array:
    __array_interface__ = {"shape": (1,), "typestr": "<i8", "data": (4096, False), "version": 3}
    __array_struct__ = 0
    def __len__(self): return 1
    def __getitem__(self, index): return [4][index]
def f(x): return Array()
"""
    ended = run_tests(program, ["import numpy\nassert numpy.array_equal(f(2), [4])"], "", seconds=60, memory=2 << 30)
    assert ended.passed, ended.detail


def test_the_program_reaches_nothing_through_objects_of_the_tests() -> None:
    """It is called with a function, a generator and an object of the tests, and looks for their globals."""
    program = """
def f(value, names):
    for name in names:
        try: value = type(value).__getattr__(value, name)
        except Exception as error: return type(error).__name__
    return "reached"
"""
    tests = """
class Node:
    value = 1
    def double(self): return 2 * self.value
def one(): yield 1
assert f(Node, ["__init__", "__globals__"]) != "reached"
assert f(one, ["__globals__"]) == "PermissionError"
assert f(one(), ["gi_frame", "f_globals"]) == "PermissionError"
assert f(Node(), ["__class__", "__mro__"]) != "reached"
assert f(Node(), ["double", "__func__", "__globals__"]) != "reached"
assert f(Node(), ["value"]) == "reached"
"""
    ended = run_tests(program, [tests], "", seconds=60, memory=MEMORY)
    assert ended.passed, ended.detail


OTHERS = """
import os, resource
def refused():
    acts = [
        lambda: resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (3, 3)),
        lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 15),
        lambda: os.sched_setaffinity(VICTIM, [0]),
        lambda: os.kill(VICTIM, 9),
    ]
    for number, act in enumerate(acts):
        try: act()
        except OSError: continue
        return number
    resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
def remain(x):
    if os.fork() == 0:
        try: os.setsid()
        except OSError: pass
        os.closerange(0, 64)
        import time
        time.sleep(600)
"""


def test_programs_are_contained_for_an_ordinary_user(tmp_path: Path) -> None:
    """With the system's Python as a user without rights: the same folder of modules, nothing else of the product."""
    python = "/usr/bin/python3"
    if os.getuid() != 0 or not Path(python).exists():
        pytest.skip("needs root, to become another user, and a Python that this user can run")
    shutil.copytree(SANDBOX, tmp_path / "sandbox")
    script = tmp_path / "as_user.py"
    script.write_text(
        f"""
import os, subprocess, sys, time, types
def of_this_test(process):
    try: return {str(tmp_path)!r}.encode() + b"/sandbox/program" in open(f"/proc/{{process}}/cmdline", "rb").read()
    except OSError: return False
for name in ("assay_serving", "assay_serving.verifiers", "assay_serving.verifiers.sandbox"):
    module = types.ModuleType(name)
    module.__path__ = [{str(tmp_path)!r} + ("/sandbox" if name.endswith("sandbox") else "")]
    sys.modules[name] = module
from assay_serving.verifiers.sandbox.program_runner import *
for method in ("", "landlock"):
    if len(containment(method)) < 4:
        print("skip")
        continue
    limits = {{"seconds": 60, "memory": {MEMORY}, "method": method}}
    assert run_tests("def f(x): return x * x", ["assert f(2) == 4"], "", **limits).passed
    read = "import os\\ndef f(x):\\n    try: open({str(tmp_path / "secret")!r})\\n    except OSError: return 1"
    assert run_tests(read, ["assert f(2) == 1"], "", **limits).passed
    victim = subprocess.Popen(["sleep", "600"])
    others = {OTHERS!r}.replace("VICTIM", str(victim.pid))
    tested = run_tests(others, ["assert refused() is None, refused()", "remain(1)"], "", **limits)
    assert tested.passed, tested.detail
    victim.kill()
    assert victim.wait() == -9
    deadline = time.monotonic() + 60
    while left := [p for p in os.listdir("/proc") if p.isdigit() and of_this_test(p)]:
        assert time.monotonic() < deadline, left
    print("contained")
""",
        encoding="utf-8",
    )
    (tmp_path / "secret").write_text("key", encoding="utf-8")
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
            os.chmod(folder, 0o755)
    ended = subprocess.run(
        [python, script], user=65534, group=65534, extra_groups=[], capture_output=True, text=True, env={}
    )
    assert ended.returncode == 0, ended.stderr
    if "contained" not in ended.stdout:
        pytest.skip("this machine does not contain programs of ordinary users")


FILTERED = """
import fcntl, os, resource
from assay_serving.verifiers.sandbox import containment as c
machine = os.uname().machine
assert c._filter(c._KILLS[machine], c._OF_PROCESS[machine], c._SIGNAL_ORDERS[machine])
resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
os.sched_setaffinity(0, os.sched_getaffinity(0))
ours, _ = os.pipe()
fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_NONBLOCK)
parent = os.getppid()
refused = [lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)), lambda: os.kill(parent, 0)]
refused += [lambda: fcntl.fcntl(ours, fcntl.F_SETOWN, parent), lambda: fcntl.fcntl(ours, fcntl.F_SETSIG, 9)]
for act in refused:
    try: act()
    except PermissionError: continue
    raise SystemExit("not refused")
"""


def test_the_filter_refuses_acts_on_other_processes_and_no_others() -> None:
    """As with versions of Landlock that do not rule signals."""
    assert subprocess.run([sys.executable, "-c", FILTERED], stderr=subprocess.PIPE, text=True).stderr == ""


UNABLE = """
import sys
from assay_serving.verifiers.sandbox import containment
assert containment._filter([containment._UNSHARE[containment.os.uname().machine], 444])
from assay.errors import BackendError
from assay_serving.verifiers import PythonTests
try:
    print(PythonTests(("assert f(2) == 4",)).check("def f(x): return 4").passed)
except BackendError as error:
    print(error)
"""


def test_a_machine_that_cannot_contain_refuses_programs_unless_the_operator_names_what_is_missing() -> None:
    """On a kernel that answers neither unshare(2) nor landlock_create_ruleset(2)."""
    refused = _unable({WITHOUT: ""})
    assert "cannot contain a program (files,network,processes" in refused
    assert f"{WITHOUT}=files,network,processes" in refused
    assert _unable({WITHOUT: "files,network"}).startswith("this machine cannot")
    assert _unable({WITHOUT: ",".join(NEEDED)}) == "True"


def _unable(environment: dict[str, str]) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", UNABLE], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_objects_of_programs_and_tests_behave_as_in_one_process() -> None:
    """In-place changes, closures, generators, classes, errors, callbacks, printed text, awaited results."""
    program = """
import asyncio, collections
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x); return self
    def pop(self):
        if not self.items: raise EmptyError("empty")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __eq__(self, other): return self.items == other.items
class EmptyError(LookupError): pass
Point = collections.namedtuple("Point", "x y")
def reverse(values): values.reverse()
def adder(n): return lambda x: x + n
def count(n):
    for i in range(n): yield i
def apply(function, values): return [function(v) for v in values]
def shift(point): return Point(point[0] + 1, point[1])
def fill(table): table.setdefault("a", []).append(1); return table["a"]
def say(x): print("said", x)
async def later(x): await asyncio.sleep(0); return x
def link(node, value): node.next = value; return node.value
def words(text): return collections.Counter(text.split())
total = 0
def add(x):
    global total
    total += x
def sum_of(*values, start=0): return sum(values) + start
"""
    tests = [
        "values = [1, 2, [3]]; inner = values[2]; reverse(values); assert values == [[3], 2, 1] and values[0] is inner",
        "assert adder(2)(40) == 42 and apply(lambda x: x * 2, (1, 2)) == [2, 4] and apply(str, [1]) == ['1']",
        "assert list(count(3)) == [0, 1, 2] and next(count(1)) == 0 and sum(count(4)) == 6 and 2 in list(count(3))",
        "stack = Stack(); stack.push(1).push([2]); assert len(stack) == 2 and stack.pop() == [2]",
        "assert stack.items == [1] and Stack().push(1) == stack and stack != Stack()",
        "assert isinstance(stack, Stack) and not isinstance(3, Stack)",
        "try:\n    Stack().pop()\n    raise SystemExit\nexcept EmptyError as error:\n    assert str(error) == 'empty'",
        "try:\n    Stack().pop()\n    raise SystemExit\nexcept LookupError:\n    pass",
        "assert shift((1, 2)) == (2, 2) and shift((1, 2)).x == 2",
        "table = {}; assert fill(table) is table['a'] and table == {'a': [1]}",
        "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    say(3)",
        "assert out.getvalue() == 'said 3\\n'",
        "import asyncio\nassert asyncio.run(later(5)) == 5",
        "class Node:\n    value = 7\nnode = Node(); assert link(node, 8) == 7 and node.next == 8",
        "assert words('a b a').most_common(1) == [('a', 2)] and words('a') == {'a': 1}",
        "add(3); add(4)",
        "assert total == 7",
        "assert sum_of(1, 2, start=3) == 6 and sum_of(*[10**30]) == 10**30",
        "assert sum_of(0.1, float('inf')) == float('inf')",
        "from decimal import Decimal\nassert apply(lambda x: x + 1, [Decimal('1.5')]) == [Decimal('2.5')]",
    ]
    ended = run_tests(program, tests, "", seconds=60, memory=MEMORY)
    assert ended.passed, ended.detail


def test_a_function_with_the_name_of_a_built_in_can_be_tested() -> None:
    assert passes("def sum(a, b): return a * b", "assert sum(2, 3) == 6")
    assert passes("def sum(a, b): return a * b", "def check(c):\n    assert c(2, 3) == 6", entry_point="sum")


def test_the_verdict_of_a_constraint_is_as_before() -> None:
    verifier = PythonTests(("assert f([2, 3]) == [4, 9]",), prelude="from typing import List")
    assert verifier.check("```python\ndef f(x: List[int]):\n    return [v * v for v in x]\n```").passed
    assert not verifier.check("```python\ndef f(x: List[int]):\n    return x\n```").passed


def test_input_cases_are_contained_too(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("42", encoding="utf-8")
    assert (
        "FileNotFoundError" in run_program(f"print(open({str(secret)!r}).read())", "", seconds=60, memory=MEMORY).stderr
    )
