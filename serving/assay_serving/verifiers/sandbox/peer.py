"""Calls between a program under test and its tests, which run in two processes.

Covers: a connection on which each side calls objects of the other, also while it is being called; `Remote`, the object
of the other side; errors as exceptions of this side. Leaves out: what a side permits (`program_process`,
`tests_process`).

The tests must not ask the program whether a result is right. So an object of the program is never equal to data, and it
is compared with another object, or calculated with, only where the tests made one of the two by calling its class.
"""

import builtins
import importlib
import io
import json
import operator
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import CoroutineType
from typing import Any, ClassVar

from assay_serving.verifiers.sandbox.values import Values

_dumps, _loads = json.dumps, json.loads  # a program may replace the module's own
LONGEST = 64 << 20  #: bytes of a message
_TEXT = 300  #: characters of an error


class GoneError(Exception):
    """The other process has ended."""


class Peer(ABC):
    """One side of the connection. `perform` carries out a call of the other side."""

    #: Whether objects of the other side may say what they are equal to.
    trusts: ClassVar[bool] = False

    def __init__(self, connection: int) -> None:
        self._connection = connection
        self.gone = False  #: whether the other process has ended
        self._received = bytearray()
        self._objects: list[Any] = []  #: that the other side can name, by number
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, Any] = {}
        self._exceptions: dict[int, int] = {}  #: numbers of exception classes of the other side, by this side's class
        self.captured: io.StringIO | None = None  #: output to send along with the next reply

    @abstractmethod
    def perform(self, operation: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Carry out `operation` on an object of this side. Any error goes to the other side."""

    def call(
        self, operation: str, target: int, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Have the other side carry out an operation. Raises what it raised, or GoneError."""
        values = Values(self.refer, self.resolve)
        message = {"do": operation, "on": target, "args": [values.encode(arg) for arg in args]}
        message["kwargs"] = {name: values.encode(value) for name, value in (kwargs or {}).items()}
        self._send(message)
        while "do" in (reply := self._receive()):
            self._answer(reply)
        sys.stdout.write(reply.get("out", ""))
        if "raised" in reply:
            raise self._exception(reply["raised"])
        result = values.decode(reply["value"])
        for number, content in enumerate(reply["changed"]):
            values.fill(values.containers[number], content)
        return result

    def serve(self) -> None:
        """Answer calls until the other side has ended."""
        while True:
            try:
                message = self._receive()
            except GoneError:
                return
            self._answer(message)

    def refer(self, value: Any) -> dict[str, Any]:
        """An object that is not data, as JSON."""
        if isinstance(value, Remote):
            return {"yours": _number_of(value)}
        if isinstance(value, type) and issubclass(value, BaseException):
            return self._refer_exception(value)
        if isinstance(value, type(sys)):
            return {"module": value.__name__}
        if isinstance(value, type) and value.__module__ == "builtins" and hasattr(builtins, value.__name__):
            return {"builtin": value.__name__}
        number = self._number(value)
        kind = "class" if isinstance(value, type) else "coroutine" if isinstance(value, CoroutineType) else "object"
        return {"ref": number, "kind": kind}

    def _refer_exception(self, kind: type[BaseException]) -> dict[str, Any]:
        base = next(c for c in kind.__mro__ if c.__module__ == "builtins")
        if kind is base:
            return {"builtin": kind.__name__}
        if id(kind) in self._exceptions:
            return {"yours": self._exceptions[id(kind)]}
        return {"ref": self._number(kind), "kind": "exception", "name": kind.__name__, "base": base.__name__}

    def resolve(self, sent: dict[str, Any]) -> Any:
        """The object of this side, or what stands for one of the other side. Raises ValueError for anything else."""
        if "yours" in sent:
            return self._objects[sent["yours"]]
        if "builtin" in sent:
            return _builtin(sent["builtin"])
        if "module" in sent:
            return _standard_module(sent["module"])
        if "ref" not in sent:
            raise ValueError("not a value")
        number = int(sent["ref"])
        if number not in self._remotes:
            self._remotes[number] = self._remote(number, sent)
        return self._remotes[number]

    def _remote(self, number: int, sent: dict[str, Any]) -> Any:
        if sent["kind"] == "exception":
            name, base = str(sent["name"]), _builtin(sent["base"])
            error_class = type(name if name.isidentifier() else "Error", (base,), {"__module__": "solution"})
            self._exceptions[id(error_class)] = number
            return error_class
        if sent["kind"] == "coroutine":
            return self._awaited(number)
        return (RemoteClass if sent["kind"] == "class" else Remote)(self, number)

    async def _awaited(self, number: int) -> Any:
        return self.call("await", number)

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def _answer(self, message: dict[str, Any]) -> None:
        values = Values(self.refer, self.resolve)
        reply: dict[str, Any]
        try:
            args = [values.decode(arg) for arg in message["args"]]
            kwargs = {name: values.decode(value) for name, value in message["kwargs"].items()}
            mutable = len(values.containers)
            target = None if message["on"] < 0 else self._objects[message["on"]]
            result = values.encode(self.perform(message["do"], target, args, kwargs))
            reply = {"value": result, "changed": [values.content(values.containers[n]) for n in range(mutable)]}
        except GoneError:
            raise
        except BaseException as error:
            reply = {"raised": self._describe(error)}
        if self.captured is not None:
            reply["out"] = self.captured.getvalue()
            self.captured.seek(0)
            self.captured.truncate()
        self._send(reply)

    def _describe(self, error: BaseException) -> dict[str, Any]:
        values = Values(self.refer, self.resolve)
        try:
            args = [values.encode(arg) for arg in error.args]
        except Exception:
            args = []
        try:
            text = str(error)[:_TEXT]
        except Exception:
            text = ""
        return {"type": self.refer(type(error)), "args": args, "text": text}

    def _exception(self, raised: dict[str, Any]) -> BaseException:
        kind, values = self.resolve(raised["type"]), Values(self.refer, self.resolve)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ValueError("not an exception")
        try:
            return kind(*[values.decode(arg) for arg in raised["args"]])
        except TypeError:  # its class wants other arguments
            return kind.__new__(kind, str(raised["text"]))

    def _send(self, message: dict[str, Any]) -> None:
        data = memoryview(_dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._connection, data) :]
        except (BrokenPipeError, ConnectionResetError) as error:
            self.gone = True
            raise GoneError from error

    def _receive(self) -> dict[str, Any]:
        end = self._received.find(b"\n")
        while end < 0:
            try:
                more = os.read(self._connection, 1 << 20)
            except ConnectionResetError:
                more = b""
            if not more:
                self.gone = True
                raise GoneError
            end = more.find(b"\n")
            end = end if end < 0 else len(self._received) + end
            self._received += more
            if len(self._received) > LONGEST:
                raise ValueError(f"a value of more than {LONGEST} bytes")
        line, self._received = self._received[:end], self._received[end + 1 :]
        message = _loads(line)
        if not isinstance(message, dict):
            raise ValueError("not a message")
        return message


def _builtin(name: Any) -> Any:
    value = getattr(builtins, str(name), None)
    if not isinstance(value, type):
        raise ValueError("not a built-in type")
    return value


def _standard_module(name: Any) -> Any:
    if str(name).partition(".")[0] not in {*sys.stdlib_module_names, "numpy"}:
        raise ValueError(f"{name} is no module of the standard library")
    return importlib.import_module(str(name))


def _number_of(remote: "Remote") -> int:
    return int(object.__getattribute__(remote, "_state")[1])


def _peer_of(remote: "Remote") -> Peer:
    peer: Peer = object.__getattribute__(remote, "_state")[0]
    return peer


def is_own(value: Any) -> bool:
    """Whether this side made the object, by calling a class of the other side."""
    return isinstance(value, Remote) and bool(object.__getattribute__(value, "_state")[2])


class Remote:
    """An object of the other side. Its attributes, calls, items and iteration are answered there."""

    __slots__ = ("_state",)

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_state", [peer, number, False])  # and whether this side made it

    def _ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        return _peer_of(self).call(operation, _number_of(self), args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Remote._ask(self, "call", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array") and not _peer_of(self).trusts:  # NumPy reads memory at an address that it names
            raise AttributeError(name)
        return Remote._ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        Remote._ask(self, "setattr", name, value)

    def __getitem__(self, key: Any) -> Any:
        return Remote._ask(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        Remote._ask(self, "setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        Remote._ask(self, "delitem", key)

    def __iter__(self) -> Iterator[Any]:
        return iter(Remote._ask(self, "iter").__next__, _END)

    def __next__(self) -> Any:
        return Remote._ask(self, "next")

    def __len__(self) -> int:
        return int(Remote._ask(self, "len"))

    def __bool__(self) -> bool:
        return bool(Remote._ask(self, "bool"))

    def __str__(self) -> str:
        return str(Remote._ask(self, "str"))

    def __repr__(self) -> str:
        return str(Remote._ask(self, "repr"))

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *raised: Any) -> Any:
        return self.__getattr__("__exit__")(None, None, None)

    def __hash__(self) -> int:
        return hash((id(_peer_of(self)), _number_of(self)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return bool(_compared("eq", self, other)) if _comparable(self, other) else False

    def __ne__(self, other: object) -> bool:
        return not self == other


_END = object()


def _comparable(left: Remote, right: Any) -> bool:
    return _peer_of(left).trusts or (isinstance(right, Remote) and (is_own(left) or is_own(right)))


def _compared(name: str, left: Any, right: Any) -> Any:
    if not _comparable(left, right):
        return NotImplemented
    result = Remote._ask(left, "operator", name, right)
    if isinstance(result, Remote):
        object.__getattribute__(result, "_state")[2] = True
    return result


def _binary(name: str) -> Callable[[Any, Any], Any]:
    return lambda left, right: _compared(name, left, right)


def _unary(name: str) -> Callable[[Any], Any]:
    def calculated(remote: Any) -> Any:
        if not (is_own(remote) or _peer_of(remote).trusts):
            raise TypeError("a result of a class of its own is not calculated with")
        return Remote._ask(remote, "operator", name)

    return calculated


for _name in (
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
):
    setattr(Remote, f"__{_name.strip('_')}__", _binary(_name))
for _name in ("neg", "pos", "invert", "abs"):
    setattr(Remote, f"__{_name}__", _unary(_name))


class RemoteClass(Remote):
    """A class of the other side. What a call of it makes is this side's own."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        instance = Remote._ask(self, "call", *args, **kwargs)
        if isinstance(instance, Remote):
            object.__getattribute__(instance, "_state")[2] = True
        return instance

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and bool(Remote._ask(self, "isinstance", value))


def perform_on_object(operation: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What `Remote` asks for, on the object itself."""
    if operation == "call":
        return target(*args, **kwargs)
    if operation == "operator":
        return getattr(operator, args[0])(target, *args[1:])
    if operation == "isinstance":
        return isinstance(args[0], target)
    return _OPERATIONS[operation](target, *args)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "getattr": getattr,
    "setattr": setattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
}
