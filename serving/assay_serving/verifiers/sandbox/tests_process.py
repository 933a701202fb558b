"""The process that runs the tests of a program and decides whether it passes.

Covers: the names of the program in the tests' namespace, what the program may do with the tests' objects, the order of
tests. Leaves out: the program, which runs in another process (`program_process`). Standard library only.
"""

import ast
import builtins
import importlib
import operator
import symtable
import sys
from collections.abc import Iterator
from typing import Any

from assay_serving.verifiers.sandbox.peer import GoneError, Peer, perform_on_object

_MODULE = "tests"
_READS = ("getattr", "getitem", "len", "bool", "str", "iter", "next")


class TestsSide(Peer):
    """The program may call what the tests pass to it, and use objects of classes that the tests define."""

    __test__ = False  #: no class of tests for pytest

    def perform(self, operation: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        of_tests = type(target).__module__ == _MODULE
        if operation == "call" and callable(target):
            return target(*args, **kwargs)
        named = str(args[0]) if operation in ("getattr", "setattr") else ""
        permitted = operation in ("iter", "next") and isinstance(target, Iterator)
        if of_tests and not named.startswith("_"):
            permitted |= operation in _READS or (operation == "operator" and args[0] in operator.__all__)
            permitted |= operation == "setattr" and not callable(getattr(type(target), named, None))
        if permitted:
            return perform_on_object(operation, target, args, kwargs)
        raise PermissionError(f"a program may not use {operation} on {type(target).__name__} of its tests")


def run_tests(tests: list[str], entry_point: str, prelude: str, connection: int) -> dict[str, Any]:
    """The verdict: {"passed": True}, {"failed": where, "error": text}, or {"gone": where} where the program ended."""
    side = TestsSide(connection)
    where = "the program"
    try:
        side.call("run", -1)
        where = "the prelude"
        names = _Names(side, entry_point, tests, prelude)
        for number, test in enumerate(tests, 1):
            where = f"test {number}"
            names.take()
            names.run(test, f"test_{number}.py")
        if entry_point and "check" in names.of_tests:
            where = "check"
            names.take()
            names.run(f"check({entry_point})", "check.py")
    except GoneError:
        return {"gone": where}
    except MemoryError:
        return {"failed": where, "error": "MemoryError"}
    except BaseException as error:
        return {"failed": where, "error": f"{type(error).__name__}: {error}"[:300]}
    return {"gone": where} if side.gone else {"passed": True}  # a test may catch any error


class _Names:
    """The namespace of the tests: what they define, and what they do not of the program.

    A program can change its names while it is tested. So what the prelude or a test has bound stays the tests' own, a
    module of the standard library is the real one, and a built-in function is the program's only where the tests use no
    other name of it.
    """

    def __init__(self, side: TestsSide, entry_point: str, tests: list[str], prelude: str) -> None:
        self._side, self._entry_point = side, entry_point
        self._namespace: dict[str, Any] = {"__name__": _MODULE}
        nodes = [node for test in tests for node in ast.walk(ast.parse(test))]
        self._used = {node.id for node in nodes if isinstance(node, ast.Name)}
        bases = [node.value for node in nodes if isinstance(node, ast.Attribute)]
        self._modules = {base.id for base in bases if isinstance(base, ast.Name)} & {*sys.stdlib_module_names, "numpy"}
        self._of_program: set[str] = set()  #: every name that the program has had
        exec(compile(prelude, "prelude.py", "exec", dont_inherit=True), self._namespace)
        self.of_tests = set(self._namespace)

    def take(self) -> None:
        """Give the tests the names of the program that they do not define themselves."""
        offered = {name for name in self._side.call("names", -1) if not name.startswith("__")} - self.of_tests
        self._of_program |= offered
        used = self._of_program & self._used
        for name in offered & self._used | (offered - self._namespace.keys()):
            if name in self._modules and name != self._entry_point:
                self._namespace[name] = importlib.import_module(name)
            elif not hasattr(builtins, name) or self._tests_built_in(name, used):
                self._namespace[name] = self._side.call("name", -1, (name,))

    def run(self, test: str, file: str) -> None:
        before = dict(self._namespace)
        exec(compile(test, file, "exec", dont_inherit=True), self._namespace)
        bound = {s.get_name() for s in symtable.symtable(test, file, "exec").get_symbols() if _binds(s)}
        changed = {name for name, value in self._namespace.items() if before.get(name, self) is not value}
        self.of_tests |= bound | changed

    def _tests_built_in(self, name: str, used: set[str]) -> bool:
        if self._entry_point:
            return name == self._entry_point
        return name in used and used <= set(dir(builtins))


def _binds(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()
