"""The process that runs the tests of a program and decides whether it passes.

Covers: the names of the program in the tests' namespace, what the program may do with the tests' objects, the order of
tests. Leaves out: the program, which runs in another process (`program_process`). Standard library only.
"""

from __future__ import annotations

import ast
import builtins
import operator
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
    namespace: dict[str, Any] = {"__name__": _MODULE}
    where = "the program"
    try:
        side.call("run", -1)
        where = "the prelude"
        exec(compile(prelude, "prelude.py", "exec", dont_inherit=True), namespace)
        defined = set(namespace)
        for number, test in enumerate(tests, 1):
            where = f"test {number}"
            _take_names(side, namespace, defined, test, entry_point)
            before = dict(namespace)
            exec(compile(test, f"test_{number}.py", "exec", dont_inherit=True), namespace)
            defined |= {name for name, value in namespace.items() if before.get(name, side) is not value}
        if entry_point and "check" in defined:
            where = "check"
            _take_names(side, namespace, defined, "", entry_point)
            exec(compile(f"check({entry_point})", "check.py", "exec", dont_inherit=True), namespace)
    except GoneError:
        return {"gone": where}
    except MemoryError:
        return {"failed": where, "error": "MemoryError"}
    except BaseException as error:
        return {"failed": where, "error": f"{type(error).__name__}: {error}"[:300]}
    return {"passed": True}


def _take_names(side: TestsSide, namespace: dict[str, Any], defined: set[str], test: str, entry_point: str) -> None:
    """Give the tests the names of the program that they do not define themselves.

    A program's `abs` or `all` does not replace the tests' built-in function, unless it is what they test.
    """
    names = set(side.call("names", -1)) - defined
    used = {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)} & names
    tested = entry_point or used <= set(dir(builtins))
    for name in names & used | (names - namespace.keys()):
        if not hasattr(builtins, name) or name == entry_point or (tested is True and name in used):
            namespace[name] = side.call("name", -1, (name,))
